"""Checksums of JSON, which detect damage to states and position files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from zlib import crc32

__all__ = ("has_checksum", "with_checksum")

NAME: Final = "checksum"


def checksum_of(content: Mapping[str, Any]) -> int:
    """Return the CRC-32 of the JSON of a mapping without its checksum, with sorted names.

    `ValueError` or `TypeError` if it holds a value that JSON cannot represent.
    """
    rest = {name: value for name, value in content.items() if name != NAME}
    return crc32(json.dumps(rest, separators=(",", ":"), sort_keys=True).encode())


def with_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping with its checksum; without one if a user's state in it cannot be represented in JSON."""
    try:
        return {**content, NAME: checksum_of(content)}
    except (TypeError, ValueError):
        return dict(content)


def has_checksum(content: Mapping[str, Any]) -> bool:
    """Return whether a mapping has the right checksum."""
    try:
        return NAME in content and content[NAME] == checksum_of(content)
    except (TypeError, ValueError, RecursionError):  # a value that JSON cannot represent
        return False
