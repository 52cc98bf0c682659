"""How much memory the items of a body take: many times the bytes of the body, if they are small."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncdata.elements.structure import nbytes
from asyncdata.system.optional_packages import require

__all__ = ("bytes_of_items", "bytes_of_records")

UNIT: Final = 4

WEIGHTS: Final = {"{": 200, "[": 80, ",": 36, '"': 28, ":": 40, "\n": 36}
"""The bytes of CPython's objects for each character of JSON: a dict, a list, a number with its place in a list, half a
string, the place of a key and its value, and the item of a line."""

RECORD: Final = 200
FIELD: Final = 140
"""The bytes of a dict, and of one of its places with the object there, beside the characters of a text."""

COUNTED: Final = [(character.encode(), weight) for character, weight in WEIGHTS.items()]
SMALL: Final = 1 << 11
"""Bytes below which characters are counted one by one: that is faster there."""

TABLE: Final = bytes(WEIGHTS.get(chr(code), 0) // UNIT for code in range(256))

WIDE: Final = re.compile(rb"[\xf0-\xf4]|\\u[dD][89abAB]")
"""A character after which all characters of its string take 4 bytes."""


def bytes_of_items(form: str, body: bytes, items: Sequence[Any], decoded: bool) -> int:
    """Return about how many bytes the items of a body take, at least as many as the body has.

    `decoded` are those that the user's function made; they are measured one by one. Otherwise the body is measured, as
    that takes a tenth of the time.
    """
    if decoded:
        size = sum(map(nbytes, items))
    elif form == "bytes":
        size = len(body)
    else:
        size = bytes_of_json(body) if form in ("json", "ndjson") else bytes_of_messages(items)
    return max(size, len(body))


def bytes_of_records(body: bytes, count: int, fields: int) -> int:
    """Return about how many bytes dicts take whose fields are numbers or texts."""
    return count * (RECORD + FIELD * fields) + character_bytes(body) * len(body)


def bytes_of_messages(items: Sequence[Any]) -> int:
    """Return about how many bytes the values of MessagePack take: as many as they would take if they came as JSON."""
    encode = require("msgspec.json", "MessagePack of a channel", "'asyncdata[web]'").encode
    try:
        return bytes_of_json(encode(items, enc_hook=repr))
    except (TypeError, ValueError, OverflowError, RecursionError):  # keys that JSON cannot have
        return sum(map(nbytes, items))


def bytes_of_json(data: bytes) -> int:
    """Return about how many bytes the values take that are parsed from some JSON."""
    if len(data) < SMALL:
        objects = sum([weight * data.count(character) for character, weight in COUNTED])
        return objects + character_bytes(data) * len(data)
    units = int(np.frombuffer(data.translate(TABLE), np.uint8).sum(dtype=np.int64))
    return UNIT * units + character_bytes(data) * len(data)


def character_bytes(data: bytes) -> int:
    """Return how many bytes a character takes at most in the strings of some JSON."""
    if data.isascii() and (b"\\" not in data or b"\\u" not in data):  # one character is found in a tenth of the time
        return 1
    return 2 if WIDE.search(data) is None else 4
