"""JSON of files and states, which strangers may have written."""

from __future__ import annotations

import json
from typing import Any

__all__ = ("parse_json",)


def parse_json(content: bytes | str) -> Any:
    """Return the value of JSON; `ValueError` if it is none, or nested more deeply than Python can handle."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("its lists and objects are nested too deeply") from None
