"""Elements whose bytes differ only in their values, read all at once: numbers, arrays and structures of them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from asyncdata.formats.element import Reader

__all__ = ("decode_alike",)

FEW: Final = 16
"""Fewer elements than this are read quicker one after the other."""

LONG: Final = 256
"""Longer records are not put beside each other, as most of them are arrays, which stay where they are."""

SPARSE: Final = 64
"""Long records of more parts than one for so many bytes are read quicker one after the other."""


def decode_alike(records: Sequence[Any]) -> list[Any] | None:
    """Return what `decode_element` makes of each record, if they are of one layout; `None` if not.

    >>> from asyncdata.formats.element import encode_element
    >>> decode_alike([encode_element((number, number / 2)) for number in range(20)])[3]
    (3, 1.5)
    """
    if len(records) < FEW or set(map(type, records)) != {bytes}:
        return None
    length = len(records[0])
    if not length or set(map(len, records)) != {length}:
        return None
    layout = Layout(records[0])
    try:
        make = layout.next()
    except (struct.error, LookupError, ValueError, TypeError, RecursionError, OverflowError):
        return None  # read one by one, the error is that of the element that is damaged
    if make is None or layout.reader.at != length:
        return None
    if length > LONG and len(layout.free) * SPARSE > length:
        return None
    table = Table(records) if length <= LONG else Slices(records)
    return list(make(table)) if table.alike(layout.free) else None


class Records(Protocol):
    """Records of one length, in columns."""

    records: Sequence[bytes]

    def alike(self, free: Sequence[tuple[int, int]]) -> bool:
        """Tell whether all records are the same but for these columns."""
        ...

    def column(self, begin: int, end: int) -> Any:
        """Return the bytes of some columns, one record after the other."""
        ...


class Table:
    """Short records as the rows of one array."""

    def __init__(self, records: Sequence[bytes]) -> None:
        self.records = records
        self.rows = np.frombuffer(b"".join(records), np.uint8).reshape(len(records), -1)

    def alike(self, free: Sequence[tuple[int, int]]) -> bool:
        differ = (self.rows != self.rows[0]).any(axis=0)
        for begin, end in free:
            differ[begin:end] = False
        return not differ.any()

    def column(self, begin: int, end: int) -> Any:
        return np.ascontiguousarray(self.rows[:, begin:end])


class Slices:
    """Long records where they are."""

    def __init__(self, records: Sequence[bytes]) -> None:
        self.records = records

    def alike(self, free: Sequence[tuple[int, int]]) -> bool:
        begins, ends = zip(*[(0, 0), *free, (len(self.records[0]),) * 2], strict=True)
        return all(
            len({record[begin:end] for record in self.records}) == 1
            for begin, end in zip(ends, begins[1:], strict=False)
            if begin < end
        )

    def column(self, begin: int, end: int) -> Any:
        return b"".join([record[begin:end] for record in self.records])


Make: TypeAlias = "Callable[[Records], Iterable[Any]]"
"""Makes one part of each element."""


class Layout:
    """How an element lies in a record: what makes its parts, and in which columns records may differ."""

    def __init__(self, record: bytes) -> None:
        self.reader = Reader(record)
        self.free: list[tuple[int, int]] = []

    def next(self) -> Make | None:
        """Return what makes the next part; `None` if that is of a kind that is read one by one."""
        parse = PARSERS.get(self.reader.data[self.reader.at])
        return None if parse is None else parse(self)

    def constant(self) -> Make:
        value = self.reader.take()
        return lambda table: [value] * len(table.records)

    def number(self, dtype: str) -> Make:
        begin, end = self.value(1)
        return lambda table: np.frombuffer(table.column(begin, end), dtype).tolist()

    def octets(self) -> Make:
        begin, end = self.value(9)  # behind the length, which all share
        return lambda table: [record[begin:end] for record in table.records]

    def value(self, head: int) -> tuple[int, int]:
        """Read past a value that differs from record to record, and return where it lies behind its `head`."""
        begin = self.reader.at + head
        self.reader.take()
        self.free.append((begin, self.reader.at))
        return begin, self.reader.at

    def array(self) -> Make:
        array = self.reader.take()
        shape, dtype, end = array.shape, array.dtype, self.reader.at
        if not array.nbytes:
            return lambda table: [np.empty(shape, dtype) for _ in table.records]
        begin = end - array.nbytes
        self.free.append((begin, end))
        return lambda table: [np.ndarray(shape, dtype, record, begin) for record in table.records]

    def parts(self, count: int) -> list[Make] | None:
        found = [self.next() for _ in range(count)]
        made = [make for make in found if make is not None]
        return made if len(made) == len(found) > 0 else None

    def sequence(self, kind: Callable[[Iterable[Any]], Any]) -> Make | None:
        self.reader.at += 1
        parts = self.parts(self.reader.size())
        if parts is None:
            return None
        return lambda table: map(kind, zip(*[part(table) for part in parts], strict=True))

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
        return lambda table: [
            dict(zip(keys, row, strict=True)) for row in zip(*[part(table) for part in parts], strict=True)
        ]


PARSERS: Final[dict[int, Callable[[Layout], Make | None]]] = {
    **dict.fromkeys(b"-tf", Layout.constant),
    ord("i"): lambda layout: layout.number("<i8"),
    ord("d"): lambda layout: layout.number("<f8"),
    ord("b"): Layout.octets,
    ord("a"): Layout.array,
    ord("u"): lambda layout: layout.sequence(tuple),
    ord("l"): lambda layout: layout.sequence(list),
    ord("m"): Layout.mapping,
}
