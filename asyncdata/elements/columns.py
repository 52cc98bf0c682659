"""ColumnBatch: elements as arrays, one for each of their leaves, until the elements themselves are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, cast, final

import numpy as np
import numpy.typing as npt

from asyncdata.elements.column_store import ColumnStore, IntegerColumn, LazyColumnStore
from asyncdata.elements.nullable_column import NullableColumn
from asyncdata.elements.structure import (
    are_objects,
    is_number,
    leading_dimension,
    leaves_of,
    map_leaves,
    nbytes,
    open_level,
    rows_of,
    stack,
)
from asyncdata.errors import StructureError
from asyncdata.memory.buffer_pool import LARGE, Empty, joined
from asyncdata.memory.output_buffers import OutputBuffer

__all__ = ("ColumnBatch", "as_shared", "divided", "is_of_numpy")

STRINGS: Final[dict[type[Any], type[Any]]] = dict.fromkeys((str, bytes, type(None)), object)
"""Types of leaves that a batch stores as objects, and its dtype."""

FEW: Final = 4
SMALL: Final = 1 << 13
"""Joining at least `FEW` parts or elements, of at most `SMALL` bytes, first is faster than handling each."""

PARTS: Final = 8
"""Each part of arrays that are passed on without a copy is at least this fraction (1 / PARTS) of them."""


@final
class ColumnBatch:
    """Rows `start` to `stop` of a structure of arrays whose first axes have one length.

    The elements are made at most once, all together, however they are read; a batch needs none of them.

    >>> columns = ColumnBatch((np.array([1, 2, 3]), np.array([b"a", b"b", b"c"], object)), 3)
    >>> list(columns[1:])
    [(np.int64(2), b'b'), (np.int64(3), b'c')]
    >>> ColumnBatch.stacked([columns[2:], columns[:1]])
    (array([3, 1]), array([b'c', b'a'], dtype=object))
    """

    __slots__ = ("start", "stop", "store")

    def __init__(self, value: Any, rows: int, owned: bool = False) -> None:
        self.store = ColumnStore(value, rows, owned)
        self.start = 0
        self.stop = rows

    @staticmethod
    def of(value: Any, owned: bool = False) -> ColumnBatch | None:
        """Return the rows of an element if all its leaves are arrays of numbers, which are equal when stacked again."""
        if is_plain(value):
            return ColumnBatch(value, len(value), owned) if len(value) else None
        rows, problem = leading_dimension(value)
        plain = problem is None and rows and all(map(is_plain, leaves_of(value)))
        return ColumnBatch(value, rows, owned) if plain else None

    @staticmethod
    def made_of(items: list[Any]) -> ColumnBatch | None:
        """Return elements in new arrays; `None` if a batch of them would differ."""
        if not alike(items):
            return None
        try:
            return ColumnBatch.of(stack(items), owned=True)
        except Exception:  # noqa: BLE001 - the batch raises it, in its place
            return None

    @staticmethod
    def same_of(items: list[Any]) -> ColumnBatch | None:
        """Return elements in new arrays; `None` if the elements read back would differ.

        Elements of different shapes are detected before an array is made, unless they are rare.
        """
        if not is_row(items[0]):
            return None
        some = [items[0], items[len(items) // 2], items[-1]]
        return (
            ColumnBatch.made_of(items) if all(map(is_row, some)) and len({traits(one) for one in some}) == 1 else None
        )

    @staticmethod
    def bundle(items: list[Any]) -> ColumnBatch | None:
        """Return elements as `same_of` does, to send them to another process, where a batch of them must be a copy;
        `None` also if sending them one by one is as good."""
        if len(items) < FEW or nbytes(items[0]) > SMALL:
            return None
        columns = ColumnBatch.same_of(items)
        return None if columns is None else columns.shared()

    @staticmethod
    def room_for(element: Any, rows: int, empty: Empty) -> ColumnBatch | None:
        """Return arrays for `rows` elements like this one, which is put into the first row.

        Arrays of numbers are made by `empty`. `None` if a row of them would differ from the element.
        """
        if element is None or not every_row(lambda leaf: numeric(leaf) or type(leaf) in STRINGS, element):
            return None
        try:
            arrays = map_leaves(lambda leaf, _: empty_rows(leaf, rows, empty), element)
        except (StructureError, MemoryError):  # the batch raises it, in its place
            return None
        columns = ColumnBatch(arrays, rows, True)
        return columns if columns.put(0, element) else None

    def put(self, row: int, element: Any) -> bool:
        """Copy an element into its row; return whether it is like the others."""
        return put(self.store.value, row, element)

    def fill(self, start: int, elements: Iterator[Any]) -> tuple[int, list[Any]]:
        """Copy an element into each row from `start` on, until one differs in kind; return its row number, and the
        element in a list, which is empty if all fit. Each element is released before the next one is made, which may
        use the same memory, or be made directly in its row.
        """
        rows = self.store.value
        filling = OutputBuffer(leaves_of(rows))
        with filling.giving():
            if type(rows) is np.ndarray and rows.dtype != object:
                return fill_array(rows, start, elements, filling)
            for row in range(start, len(self)):
                odd = self.take(row, elements, filling)
                if odd:
                    return row, odd
        return len(self), []

    def take(self, row: int, elements: Iterator[Any], filling: OutputBuffer) -> list[Any]:
        """Copy the next element into a row, or return it in a list if it differs in kind."""
        filling.row = row
        element = next(elements)
        places = filling.places()
        if places and not is_made_in(element, places):
            element, places = map_leaves(lambda leaf, _: copied(leaf), element), []
        return [] if put(self.store.value, row, element, places) else [element]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only these rows."""
        if isinstance(self.store, IntegerColumn):
            return ColumnBatch.ints, (self.store.values[self.start : self.stop],)
        return ColumnBatch, (self.value, len(self), self.store.owned)

    @staticmethod
    def ints(values: Sequence[int]) -> ColumnBatch:
        """Return Python integers, whose array is made when it is needed."""
        return ColumnBatch.of_store(IntegerColumn(values))

    @staticmethod
    def later(rows: int, weight: int, elements: Callable[[], list[Any]], value: Callable[[], Any]) -> ColumnBatch:
        """Return elements of `weight` bytes, which share no memory, and arrays; both are made when they are needed."""
        return ColumnBatch.of_store(LazyColumnStore(rows, weight, elements, value))

    @staticmethod
    def of_store(store: ColumnStore) -> ColumnBatch:
        """Return all rows of a store."""
        columns = ColumnBatch.__new__(ColumnBatch)
        columns.store, columns.start, columns.stop = store, 0, store.rows
        return columns

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, span: slice[int | None, int | None, None]) -> ColumnBatch:
        start, stop, _ = span.indices(self.stop - self.start)
        return self.rows(start, max(start, stop))

    def rows(self, start: int, stop: int) -> ColumnBatch:
        """Return rows `start` to `stop`, which must exist."""
        part = ColumnBatch.__new__(ColumnBatch)
        part.store, part.start, part.stop = self.store, self.start + start, self.start + stop
        return part

    def __iter__(self) -> Iterator[Any]:
        return iter(self.elements())

    def __repr__(self) -> str:
        return f"Columns({self.elements()!r})"

    @property
    def integers(self) -> bool:
        """Whether the elements are Python integers."""
        return type(self.store) is IntegerColumn

    def at(self, places: Sequence[int]) -> ColumnBatch:
        """Return the rows at some indices; a range of them is a view. Read-only if the arrays are."""
        if self.store.objects:
            rows = range(self.start, self.stop)
            is_range = isinstance(places, range)
            return ColumnBatch.of_store(
                self.store.at(rows[places.start : places.stop : places.step] if is_range else [rows[p] for p in places])
            )
        at = slice(places.start, places.stop, places.step) if isinstance(places, range) else np.array(places, np.intp)
        return ColumnBatch(
            map_leaves(lambda leaf, _: as_shared(leaf, self.leaf(leaf)[at]), self.store.value), len(places)
        )

    def elements(self) -> list[Any]:
        made = self.store.elements()
        return made if len(self) == len(made) else made[self.start : self.stop]

    def shared(self) -> ColumnBatch:
        """Mark these rows as shared, so that a batch of them is a copy."""
        return ColumnBatch(self.value, len(self)) if self.store.owned else self

    @staticmethod
    def apart(parts: Sequence[ColumnBatch]) -> list[Any]:
        """Return the elements of parts, each in its own memory, so that keeping one does not keep the others."""
        return list(chain.from_iterable([part.singly() for part in parts]))

    def singly(self) -> list[Any]:
        if self.store.objects:
            return self.elements()
        return rows_of(map_leaves(lambda leaf, _: [row.copy() for row in self.leaf(leaf)], self.store.raw), len(self))

    @property
    def complete(self) -> bool:
        """Whether the arrays contain all of the elements: not for objects of classes, which another process may not
        know, nor for dicts that a consumer may have changed."""
        if self.store.objects or type(self.store.raw) is np.ndarray:
            return self.integers or not self.store.objects
        return self.store.items is None and tells_all(self.store.raw)

    @property
    def weight(self) -> int:
        """The bytes of an element, as far as they are known."""
        store = self.store
        return store.weight if isinstance(store, LazyColumnStore) else max(1, nbytes(store.raw) // store.rows)

    @property
    def bare(self) -> bool:
        """Whether elements are rows of one shared array, which are cheap to make and to stack."""
        return not self.store.owned and (self.integers or isinstance(self.store.raw, np.ndarray))

    @property
    def value(self) -> Any:
        """The structure of arrays; of views for a part of their rows."""
        store = self.store
        if len(self) == store.rows:
            return store.value
        return map_leaves(lambda leaf, _: self.leaf(leaf), store.value)

    def leaf(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return these rows of one array, as a view."""
        return array[self.start : self.stop]

    @staticmethod
    def stacked(parts: Sequence[ColumnBatch]) -> Any:
        """Return consecutive parts as one structure, in new arrays."""
        if len(parts) == 1:
            return parts[0].batch()
        found = concatenated(parts, [part.store.raw for part in parts])
        return stack([element for part in parts for element in part]) if found is None else restacked(found)

    def batch(self) -> Any:
        """Return these rows as one structure, in new arrays."""
        if self.given():
            return restacked(self.value)
        return map_leaves(lambda leaf, where: batch_of_leaf(self.leaf(leaf), where, owned_copies), self.store.raw)

    def small_batches(self, stops: Sequence[int]) -> list[Any]:
        """Return copies of the rows up to each of `stops`, all at once; nothing unless they are small."""
        if self.weight * stops[-1] > SMALL * len(stops):
            return []
        begin = self.start
        spans = [slice(begin + start, begin + stop) for start, stop in zip(chain((0,), stops), stops, strict=False)]
        try:
            return copies(self.store.raw, spans)
        except (MemoryError, StructureError):  # the batch raises it, in its place
            return []

    @staticmethod
    def gathered(parts: Sequence[ColumnBatch]) -> Sequence[ColumnBatch]:
        """Return consecutive parts as one if they are many and small, as one is faster to cut."""
        if len(parts) < FEW or sum([len(part) * part.weight for part in parts]) > SMALL * len(parts):
            return parts
        try:
            found = concatenated(parts, [part.store.raw for part in parts])
        except MemoryError:  # the batch raises it, in its place
            return parts
        return parts if found is None else [ColumnBatch(found, sum(map(len, parts)), owned=True)]

    def given(self) -> bool:
        """Return whether these rows may be passed on without a copy, as nothing else refers to them; mark them given.

        A part keeps all rows in memory, so a small part is better copied.
        """
        store = self.store
        mine = store.owned and store.items is None and self.start >= store.given and len(self) * PARTS >= store.rows
        if mine:
            store.given = self.stop
        return mine


def as_shared(array: Any, rows: Any) -> Any:
    """Return rows of an array, read-only if the array is, even if they are a copy: users see no difference."""
    if isinstance(array, np.ndarray) and not array.flags.writeable:
        rows.flags.writeable = False
    return rows


def divided(columns: Sequence[ColumnBatch], stops: Sequence[int]) -> Iterator[list[ColumnBatch]]:
    """Yield the parts of consecutive columns up to each of `stops`."""
    parts = iter(columns)
    part, begin, at = next(parts), 0, 0
    end = len(part)
    for stop in stops:
        found: list[ColumnBatch] = []
        while end < stop:
            if at < end:  # an empty rest would make the next part incomplete, and so copied
                found.append(part.rows(at - begin, end - begin))
            part, begin = next(parts), end
            at, end = begin, begin + len(part)
        found.append(part.rows(at - begin, stop - begin))
        at = stop
        yield found


def is_plain(leaf: Any) -> bool:
    """Return whether rows of an array, when stacked, always equal a part of such an array."""
    return type(leaf) is np.ndarray and leaf.ndim > 0 and leaf.dtype.kind in "biufc" and leaf.dtype.isnative


def is_row(value: Any) -> bool:
    """Return whether a value can be read back from arrays unchanged: Python numbers would become NumPy's, and objects
    of classes might lose attributes."""
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is tuple or kind is dict:
        return all(map(is_row, value.values() if kind is dict else value))
    if issubclass(kind, np.character):  # an array drops zeros at their end
        return False
    return is_of_numpy(kind) or (kind is np.ndarray and value.ndim > 0)


def is_of_numpy(kind: type[Any]) -> bool:
    """Return whether a type is one of NumPy's numbers, and none that a user has derived from it."""
    return issubclass(kind, np.generic) and np.dtype(cast("Any", kind)).type is kind


def traits(row: Any) -> tuple[Any, ...]:
    """Return the dtypes and shapes of the arrays and numbers in a row."""
    return tuple([(leaf.dtype, leaf.shape) for leaf in leaves_of(row)])


def tells_all(value: Any) -> bool:
    """Return whether a value consists only of arrays in tuples and dicts."""
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is tuple or kind is dict:
        return all(map(tells_all, value.values() if kind is dict else value))
    return kind is np.ndarray


def owned_copies(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return joined([rows]) if rows.nbytes >= LARGE else rows.copy()


def batch_of_leaf(rows: Any, where: str, copy: Callable[[npt.NDArray[Any]], npt.NDArray[Any]] = np.asarray) -> Any:
    """Return the batch of the rows of one array, by `copy` if it is an array of the same numbers.

    `stack` decides what a batch of objects is: they may be arrays, numbers or structures, some of them missing. So a
    batch does not depend on whether its rows came in columns.
    """
    if isinstance(rows, NullableColumn):
        return rows.batch()
    if rows.dtype.kind in "OSU":
        items = rows.tolist() if rows.ndim == 1 and rows.dtype == object else [*rows]
        return copy(rows) if are_objects(set(map(type, items))) else stack(items, where)
    if rows.dtype.isnative and rows.dtype.names is None:
        return copy(rows)
    return rows.astype(np.result_type(rows.dtype))  # of fields without gaps, as NumPy joins rows


def restacked(value: Any) -> Any:
    """Return new arrays as the batch of their rows."""
    return map_leaves(batch_of_leaf, value)


def copies(value: Any, spans: Sequence[slice], where: str = "") -> list[Any]:
    """Return the batches of some spans of rows of a structure of arrays, in new arrays."""
    level = open_level(value)
    if level is None:
        return [batch_of_leaf(value[span], where, np.ndarray.copy) for span in spans]
    columns = [copies(part, spans, where + name) for part, name in zip(level.parts, level.names, strict=True)]
    return [level.rebuild([column[place] for column in columns]) for place in range(len(spans))]


def every_row(test: Callable[[Any], bool], element: Any) -> bool:
    """Return whether an element has leaves and all of them pass a test."""
    leaves = leaves_of(element)
    return bool(leaves) and all(map(test, leaves))


def alike(items: Sequence[Any]) -> bool:
    """Return whether elements have one structure, with numbers of one type and arrays of one dtype."""
    kinds = set(map(type, items))
    kind = kinds.pop()
    if kinds:
        return False
    if kind is np.ndarray:
        return arrays_alike(items)
    if kind is dict:
        return dicts_alike(items)
    return is_number(kind) or parts_alike(items)


def arrays_alike(arrays: Sequence[npt.NDArray[Any]]) -> bool:
    """Return whether arrays have one dtype of numbers without metadata, which is not compared and would be lost."""
    dtypes = {id(dtype): dtype for dtype in [array.dtype for array in arrays]}.values()
    return numeric(arrays[0]) and len(set(dtypes)) == 1 and all(dtype.metadata is None for dtype in dtypes)


def dicts_alike(dicts: Sequence[dict[Any, Any]]) -> bool:
    """Return whether dicts have the same strings as keys, in one order. Other keys may be equal and differ, as 1 and
    True."""
    keys = list(dicts[0])
    if not all(list(one) == keys for one in dicts) or set(map(type, chain.from_iterable(dicts))) - {str}:
        return False
    return all(alike([one[key] for one in dicts]) for key in keys)


def parts_alike(items: Sequence[Any]) -> bool:
    """Return whether tuples, or objects of one class with parts, are alike."""
    if type(items[0]) is tuple:  # faster than opening each
        return len(set(map(len, items))) == 1 and all(map(alike, zip(*items, strict=True)))
    levels = [level for level in map(open_level, items) if level is not None]
    if not levels or any(level.names != levels[0].names for level in levels):
        return False
    return all(map(alike, zip(*[level.parts for level in levels], strict=True)))


def numeric(leaf: Any) -> bool:
    """Return whether a leaf, stacked, is an array of numbers."""
    kind: type[Any] = type(leaf)  # pyright: ignore[reportUnknownVariableType]
    if kind is np.ndarray:
        return leaf.dtype.kind in "biufc" and leaf.dtype.isnative
    return is_number(kind) and (is_of_numpy(kind) or not issubclass(kind, np.generic))


def empty_rows(leaf: Any, rows: int, empty: Empty) -> npt.NDArray[Any]:
    """Return an array for `rows` rows like this leaf."""
    if type(leaf) is np.ndarray:
        return empty((rows, *leaf.shape), leaf.dtype)
    like = stack([leaf])
    return (np.empty if like.dtype == object else empty)((rows,), like.dtype)


def is_made_in(element: Any, places: Sequence[npt.NDArray[Any]]) -> bool:
    """Return whether an element's arrays are exactly these places, so that none is overwritten by another one."""
    leaves = leaves_of(element)
    return all(any(leaf is place for leaf in leaves) for place in places)


def copied(leaf: Any) -> Any:
    """Return a leaf that shares no memory."""
    return np.array(leaf) if type(leaf) is np.ndarray else leaf


def put(target: Any, row: int, value: Any, places: Sequence[npt.NDArray[Any]] = ()) -> bool:
    """Copy a value into a row of arrays if it is of their kind; arrays that are one of these places need no copy."""
    if not isinstance(target, np.ndarray):
        mine, other = open_level(target), open_level(value)
        if mine is None or other is None or type(target) is not type(value) or mine.names != other.names:
            return False
        return all(put(part, row, piece, places) for part, piece in zip(mine.parts, other.parts, strict=True))
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is not np.ndarray and kind not in STRINGS and not is_number(kind):
        return False
    array = cast("npt.NDArray[Any]", value if kind is np.ndarray else np.array(value, STRINGS.get(kind)))
    rows = cast("npt.NDArray[Any]", target)
    if array.dtype != rows.dtype or array.shape != rows.shape[1:]:
        return False
    if not any(array is place for place in places):
        rows[row] = array if rows.dtype != object else value
    return True


def fill_array(
    rows: npt.NDArray[Any], start: int, arrays: Iterator[Any], filling: OutputBuffer
) -> tuple[int, list[Any]]:
    """Copy arrays into rows, as `ColumnBatch.fill` does."""
    dtype, shape = rows.dtype, rows.shape[1:]
    for row in range(start, len(rows)):
        filling.row = row
        array = next(arrays)
        if filling.taken and array is filling.places()[0]:
            del array
            continue
        if type(array) is np.ndarray and array.dtype is dtype and array.shape == shape:
            rows[row] = array
        elif not put(rows, row, array):
            return row, [array]
        del array
    return len(rows), []


def concatenated(parts: Sequence[ColumnBatch], values: Sequence[Any]) -> Any:
    """Return rows of structures of the same arrays as one structure; `None` if they differ."""
    first = values[0]
    if NullableColumn in set(map(type, values)):
        return nullable(parts, values)
    if isinstance(first, np.ndarray):
        arrays = cast("Sequence[npt.NDArray[Any]]", values)
        dtype, shape = arrays[0].dtype, arrays[0].shape[1:]
        for array in arrays:
            if type(array) is not np.ndarray or array.dtype != dtype or array.shape[1:] != shape:
                return None
        pieces = [part.leaf(array) for part, array in zip(parts, arrays, strict=True)]
        return joined(pieces) if sum([piece.nbytes for piece in pieces]) >= LARGE else np.concatenate(pieces)
    levels = [open_level(value) for value in values]
    top = levels[0]
    if top is None or any(level is None or level.names != top.names for level in levels):
        return None
    if any(type(value) is not type(first) for value in values):
        return None
    columns = zip(*[level.parts for level in levels if level is not None], strict=True)
    found = [concatenated(parts, column) for column in columns]
    return None if any(one is None for one in found) else top.rebuild(found)


def nullable(parts: Sequence[ColumnBatch], values: Sequence[Any]) -> NullableColumn | None:
    """Return rows of columns some of which have missing numbers as one column; `None` if they differ."""
    if any(type(value) not in (np.ndarray, NullableColumn) for value in values):
        return None
    return NullableColumn.joined([part.leaf(value) for part, value in zip(parts, values, strict=True)])
