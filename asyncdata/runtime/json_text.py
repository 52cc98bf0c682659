"""JSON of files and states, which strangers may have written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

__all__ = ("mappings_in", "parse_json")


def parse_json(content: bytes | str) -> Any:
    """Return the value of JSON; `ValueError` if it is none, or nested more deeply than Python can handle."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("its lists and objects are nested too deeply") from None


def mappings_in(state: object) -> Iterator[dict[str, Any]]:
    """Yield each dict that a state contains, at any depth."""
    waiting: list[object] = [state]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            mapping = cast("dict[str, Any]", value)
            yield mapping
            waiting.extend(mapping.values())
        elif isinstance(value, (list, tuple)):
            waiting.extend(cast("list[Any]", value))
