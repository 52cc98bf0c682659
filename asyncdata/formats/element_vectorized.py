"""Encodes and decodes many elements of one layout at once: numbers, arrays and structures with different values."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncdata.elements.columns import ColumnBatch
from asyncdata.elements.structure import leaves_of, map_leaves, rows_of
from asyncdata.formats.element_codec import ElementReader, encode_element

__all__ = ("UniformElements", "UniformRecords", "decode_uniform", "encode_uniform")

FEW: Final = 16
"""Fewer elements than this are faster to read one after another."""

LONG: Final = 256
"""Longer records are not copied together to compare them, as comparing parts of each is as fast."""

WIDE: Final = 1 << 14
"""The arrays of longer records are copied only once, to a batch or to the consumer."""

SPARSE: Final = 64
"""Long records with less than this many bytes per part are faster to read one after another."""


def decode_uniform(records: Sequence[Any]) -> list[Any] | ColumnBatch | None:
    """Decode each record as `decode_element` does, if they have one layout; `None` if not.

    Returns columns if rows of arrays are equivalent: elements are then made when needed, each in its own memory.

    >>> from asyncdata.formats.element_codec import encode_element
    >>> decode_uniform([encode_element((number, number / 2)) for number in range(20)])[3]
    (3, 1.5)
    """
    if len(records) < FEW or set(map(type, records)) != {bytes}:
        return None
    length = len(records[0])
    if not length or set(map(len, records)) != {length}:
        return None
    layout = Layout(records[0])
    try:
        part = layout.next()
    except (struct.error, LookupError, ValueError, TypeError, RecursionError, OverflowError):
        return None  # decoding one by one gives the error of the damaged element
    if part is None or layout.reader.at != length:
        return None
    if length > LONG and len(layout.free) * SPARSE > length:
        return None
    table = UniformRecords(records)
    return part.of(table) if table.alike(layout.free) else None


def encode_uniform(columns: ColumnBatch) -> UniformElements | None:
    """Return an encoder with the result of `encode_element`; `None` if each element must be encoded by itself.

    >>> written = encode_uniform(ColumnBatch.ints(range(20)))
    >>> rows = np.empty((20, written.width), np.uint8)
    >>> written.fill(rows, 0)
    >>> list(decode_uniform([row.tobytes() for row in rows]))[3]
    3
    """
    if len(columns) < FEW or not columns.complete:
        return None
    value = (
        columns.value.astype("<i8", copy=False) if columns.integers else columns.value
    )  # as Python integers are written
    leaves = leaves_of(value)
    if not all(is_plain(leaf.dtype) for leaf in leaves):
        return None
    (first,) = rows_of(map_leaves(lambda leaf, _: leaf[:1], value), 1)
    record = encode_element(int(first) if columns.integers else first)
    layout, arrays = Layout(record), [leaf for leaf in leaves if leaf[:1].nbytes]
    layout.next()
    if len(layout.free) != len(arrays):  # there is an empty tuple or dict, after which the layout does not look
        return None
    return UniformElements(record, list(zip(layout.free, arrays, strict=True)))


@dataclass(frozen=True)
class UniformElements:
    """Encodes elements of one layout: the first encoded element, and where the values of each element go."""

    record: bytes
    values: Sequence[tuple[tuple[int, int], npt.NDArray[Any]]]

    @property
    def width(self) -> int:
        """How many bytes each element has."""
        return len(self.record)

    def fill(self, rows: npt.NDArray[np.uint8], start: int) -> None:
        """Write an element into each row, the first of them the one with the number `start`."""
        rows[:] = np.frombuffer(self.record, np.uint8)
        for (begin, end), array in self.values:
            part = np.ascontiguousarray(array[start : start + len(rows)])
            rows[:, begin:end] = part.reshape(len(rows), -1).view(np.uint8)


class UniformRecords:
    """Records of one length, as bytes and as the rows of one array."""

    def __init__(self, records: Sequence[bytes]) -> None:
        self.records = records
        self.width = len(records[0])

    @cached_property
    def rows(self) -> npt.NDArray[np.uint8]:
        """The bytes of all records, made when they are first needed."""
        return np.frombuffer(b"".join(self.records), np.uint8).reshape(len(self.records), -1)

    def alike(self, free: Sequence[tuple[int, int]]) -> bool:
        """Return whether all records are equal except in these columns."""
        if self.width <= LONG:
            differ = (self.rows != self.rows[0]).any(axis=0)
            for begin, end in free:
                differ[begin:end] = False
            return not differ.any()
        begins, ends = zip(*[(0, 0), *free, (self.width,) * 2], strict=True)
        return all(
            len({record[begin:end] for record in self.records}) == 1
            for begin, end in zip(ends, begins[1:], strict=False)
            if begin < end
        )

    def column(self, begin: int, end: int, dtype: npt.DTypeLike, shape: tuple[int, ...] = ()) -> npt.NDArray[Any]:
        """Return some columns of each record, in a new array."""
        return np.ascontiguousarray(self.rows[:, begin:end]).view(dtype).reshape(len(self.records), *shape)


Make: TypeAlias = Callable[[UniformRecords], Iterable[Any]]
"""Makes one part of each element."""


@dataclass(frozen=True)
class LayoutPart:
    """Decodes one part of each element; as arrays if rows of arrays are equivalent."""

    make: Make
    stack: Callable[[UniformRecords], Any] | None = None
    integers: bool = False

    def of(self, table: UniformRecords) -> list[Any] | ColumnBatch:
        """Return the elements that consist of this part."""
        stack, records = self.stack, table.records
        if self.integers:
            return ColumnBatch.ints([*self.make(table)])
        if stack is None or table.width > WIDE:
            return [*self.make(table)]
        return ColumnBatch.later(  # from temporary tables, so that the records stay in memory, not a copy of them
            len(records),
            table.width,
            lambda: [*self.make(UniformRecords(records))],
            lambda: stack(UniformRecords(records)),
        )


class Layout:
    """The layout of an element in a record: the decoders of its parts, and the columns in which records may differ."""

    def __init__(self, record: bytes) -> None:
        self.reader = ElementReader(record)
        self.free: list[tuple[int, int]] = []

    def next(self) -> LayoutPart | None:
        """Return the decoder of the next part; `None` if its kind must be read one by one."""
        parse = PARSERS.get(self.reader.data[self.reader.at])
        return None if parse is None else parse(self)

    def constant(self) -> LayoutPart:
        value = self.reader.take()
        return LayoutPart(lambda table: [value] * len(table.records))

    def number(self, dtype: str) -> LayoutPart:
        begin, end = self.value(1)
        return LayoutPart(lambda table: table.column(begin, end, dtype).tolist(), integers=dtype == "<i8")

    def octets(self) -> LayoutPart:
        begin, end = self.value(9)  # after the length, which is the same for all

        def make(table: UniformRecords) -> list[bytes]:
            return [record[begin:end] for record in table.records]

        return LayoutPart(make, lambda table: np.fromiter(make(table), object, len(table.records)))

    def value(self, head: int) -> tuple[int, int]:
        """Skip a value that differs between records, and return its place after its `head`."""
        begin = self.reader.at + head
        self.reader.take()
        self.free.append((begin, self.reader.at))
        return begin, self.reader.at

    def array(self) -> LayoutPart:
        array: npt.NDArray[Any] = self.reader.take()
        shape, dtype, end = array.shape, array.dtype, self.reader.at
        if not array.nbytes:
            return LayoutPart(lambda table: [np.empty(shape, dtype) for _ in table.records])
        begin = end - array.nbytes
        self.free.append((begin, end))

        def make(table: UniformRecords) -> list[npt.NDArray[Any]]:
            return [np.ndarray(shape, dtype, record, begin) for record in table.records]

        def stack(table: UniformRecords) -> npt.NDArray[Any]:
            return table.column(begin, end, dtype, shape)

        return LayoutPart(make, stack if shape and is_plain(dtype) else None)

    def scalar(self) -> LayoutPart | None:
        """Return the decoder of NumPy scalars."""
        value: np.generic = self.reader.take()
        dtype, end = value.dtype, self.reader.at
        if not is_plain(dtype):
            return None
        begin = end - dtype.itemsize
        self.free.append((begin, end))

        def stack(table: UniformRecords) -> npt.NDArray[Any]:
            return table.column(begin, end, dtype)

        return LayoutPart(stack, stack)

    def parts(self, count: int) -> list[LayoutPart] | None:
        found = [self.next() for _ in range(count)]
        made = [part for part in found if part is not None]
        return made if len(made) == len(found) > 0 else None

    def sequence(self, kind: Callable[[Iterable[Any]], Any]) -> LayoutPart | None:
        self.reader.at += 1
        parts = self.parts(self.reader.size())
        if parts is None:
            return None
        stacks = stacks_of(parts)

        def make(table: UniformRecords) -> Iterable[Any]:
            return map(kind, zip(*[part.make(table) for part in parts], strict=True))

        def stack(table: UniformRecords) -> tuple[Any, ...]:
            return tuple([stack(table) for stack in stacks])

        return LayoutPart(make, stack if stacks and kind is tuple else None)

    def mapping(self) -> LayoutPart | None:
        self.reader.at += 1
        keys: list[Any] = []
        parts: list[LayoutPart] = []
        for _ in range(self.reader.size()):
            keys.append(self.reader.take())
            part = self.next()
            if part is None:
                return None
            parts.append(part)
        if not parts or len(set(keys)) < len(keys):
            return None
        stacks = stacks_of(parts)

        def make(table: UniformRecords) -> list[dict[Any, Any]]:
            return [
                dict(zip(keys, row, strict=True)) for row in zip(*[part.make(table) for part in parts], strict=True)
            ]

        def stack(table: UniformRecords) -> dict[Any, Any]:
            return {key: stack(table) for key, stack in zip(keys, stacks, strict=True)}

        return LayoutPart(make, stack if stacks and set(map(type, keys)) == {str} else None)


def stacks_of(parts: Sequence[LayoutPart]) -> list[Callable[[UniformRecords], Any]]:
    """Return the functions that stack each part into arrays; nothing unless all parts have one."""
    stacks = [part.stack for part in parts if part.stack is not None]
    return stacks if len(stacks) == len(parts) else []


def is_plain(dtype: np.dtype[Any]) -> bool:
    """Return whether a row of an array of this dtype equals the value that was written."""
    return dtype.kind in "biufc" and dtype.isbuiltin == 1 and dtype.isnative


PARSERS: Final[dict[int, Callable[[Layout], LayoutPart | None]]] = {
    **dict.fromkeys(b"-tf", Layout.constant),
    ord("i"): lambda layout: layout.number("<i8"),
    ord("d"): lambda layout: layout.number("<f8"),
    ord("b"): Layout.octets,
    ord("a"): Layout.array,
    ord("g"): Layout.scalar,
    ord("u"): lambda layout: layout.sequence(tuple),
    ord("l"): lambda layout: layout.sequence(list),
    ord("m"): Layout.mapping,
}
