"""Elements whose bytes differ only in their values, read all at once: small ones, such as numbers and dicts of them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from asyncdata.formats.element import Reader

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ("decode_alike",)

FEW: Final = 16
"""Fewer elements than this are read quicker one after the other."""

LONG: Final = 256
"""So are longer ones, most of which are arrays."""


def decode_alike(records: Sequence[Any]) -> list[Any] | None:
    """Return what `decode_element` makes of each record, if they are of one layout and small; `None` if not.

    >>> from asyncdata.formats.element import encode_element
    >>> decode_alike([encode_element((number, number / 2)) for number in range(20)])[3]
    (3, 1.5)
    """
    if len(records) < FEW or set(map(type, records)) != {bytes}:
        return None
    length = len(records[0])
    if not 0 < length <= LONG or set(map(len, records)) != {length}:
        return None
    layout = Layout(records[0])
    try:
        make = layout.next()
    except (struct.error, LookupError, ValueError, TypeError, RecursionError, OverflowError):
        return None  # read one by one, the error is that of the element that is damaged
    table = np.frombuffer(b"".join(records), np.uint8).reshape(-1, length)
    if make is None or layout.reader.at != length or (table != table[0]).any(axis=0)[layout.fixed].any():
        return None
    return list(make(table, records))


Make: TypeAlias = "Callable[[NDArray[np.uint8], Sequence[bytes]], Iterable[Any]]"
"""Makes one part of each element, of a table with a row for each record, and of the records."""


class Layout:
    """How an element lies in a record: what makes its parts, and which bytes all records share."""

    def __init__(self, record: bytes) -> None:
        self.reader = Reader(record)
        self.fixed = np.ones(len(record), bool)

    def next(self) -> Make | None:
        """Return what makes the next part; `None` if that is of a kind that is read one by one."""
        begin, tag = self.reader.at, chr(self.reader.data[self.reader.at])
        if tag in "ul":
            return self.sequence(tuple if tag == "u" else list)
        if tag == "m":
            return self.mapping()
        if tag not in "-tfidb":
            return None
        value = self.reader.take()
        if tag in "-tf":
            return lambda _, records: [value] * len(records)
        end = self.reader.at
        begin += 9 if tag == "b" else 1  # the length of bytes is one of those that all share
        self.fixed[begin:end] = False
        if tag == "b":
            return lambda _, records: [record[begin:end] for record in records]
        dtype = "<i8" if tag == "i" else "<f8"
        return lambda table, _: np.ascontiguousarray(table[:, begin:end]).view(dtype).ravel().tolist()

    def parts(self, count: int) -> list[Make] | None:
        found = [self.next() for _ in range(count)]
        made = [make for make in found if make is not None]
        return made if len(made) == len(found) > 0 else None

    def sequence(self, kind: Callable[[Iterable[Any]], Any]) -> Make | None:
        self.reader.at += 1
        parts = self.parts(self.reader.size())
        if parts is None:
            return None
        return lambda table, records: map(kind, zip(*[part(table, records) for part in parts], strict=True))

    def mapping(self) -> Make | None:
        self.reader.at += 1
        keys: list[Any] = []
        parts: list[Make] = []
        for _ in range(self.reader.size()):
            keys.append(self.reader.take())
            part = self.next()
            if part is None:
                return None
            parts.append(part)
        if not parts or len(set(keys)) < len(keys):
            return None
        return lambda table, records: [
            dict(zip(keys, row, strict=True)) for row in zip(*[part(table, records) for part in parts], strict=True)
        ]
