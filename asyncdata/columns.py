"""Columns: elements that lie in arrays, one for each of their leaves, until somebody wants the elements themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast, final

import numpy as np
import numpy.typing as npt

from asyncdata.memory import LARGE, joined
from asyncdata.structure import leading, map_leaves, open_level, rows_of, stack

__all__ = ("Columns", "divided")


@final
class Columns:
    """Rows `start` to `stop` of a structure of arrays whose first axes have one length.

    The elements are made at most once, all together, however they are taken; a batch needs none.

    >>> columns = Columns((np.array([1, 2, 3]), np.array([b"a", b"b", b"c"], object)), 3)
    >>> list(columns[1:])
    [(np.int64(2), b'b'), (np.int64(3), b'c')]
    >>> Columns.stacked([columns[2:], columns[:1]])
    (array([3, 1]), array([b'c', b'a'], dtype=object))
    """

    __slots__ = ("start", "stop", "whole")

    def __init__(self, value: Any, rows: int) -> None:
        self.whole = Whole(value, rows)
        self.start = 0
        self.stop = rows

    @staticmethod
    def of(value: Any) -> Columns | None:
        """Return the rows of an element if all its leaves are arrays of numbers, which stacked again are the same."""
        if is_plain(value):
            return Columns(value, len(value)) if len(value) else None
        rows, problem = leading(value)
        leaves: list[Any] = []
        map_leaves(lambda leaf, _: leaves.append(leaf), value)
        return Columns(value, rows) if problem is None and rows and all(map(is_plain, leaves)) else None

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as these rows alone."""
        if isinstance(self.whole, Integers):
            return Columns.ints, (self.whole.values[self.start : self.stop],)
        return Columns, (map_leaves(lambda leaf, _: self.leaf(leaf), self.whole.value), len(self))

    @staticmethod
    def ints(values: range) -> Columns:
        """Return Python's integers, whose array is made when somebody wants that."""
        columns = Columns.__new__(Columns)
        columns.whole, columns.start, columns.stop = Integers(values), 0, len(values)
        return columns

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, span: slice[int | None, int | None, None]) -> Columns:
        start, stop, _ = span.indices(self.stop - self.start)
        return self.rows(start, max(start, stop))

    def rows(self, start: int, stop: int) -> Columns:
        """Return rows `start` to `stop` of these, which has as many."""
        part = Columns.__new__(Columns)
        part.whole, part.start, part.stop = self.whole, self.start + start, self.start + stop
        return part

    def __iter__(self) -> Iterator[Any]:
        return iter(self.elements())

    def __repr__(self) -> str:
        return f"Columns({self.elements()!r})"

    def elements(self) -> list[Any]:
        """Return the elements."""
        made = self.whole.elements()
        return made if len(self) == len(made) else made[self.start : self.stop]

    @property
    def bare(self) -> bool:
        """Whether elements are rows of one array, and cheap to make and to stack."""
        return type(self.whole) is Integers or isinstance(self.whole.value, np.ndarray)

    def leaf(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return these rows of one array, as a view."""
        return array[self.start : self.stop]

    @staticmethod
    def stacked(parts: Sequence[Columns]) -> Any:
        """Return parts that follow each other as one structure, in arrays of their own."""
        found = concatenated(parts, [part.whole.value for part in parts])
        return stack([element for part in parts for element in part]) if found is None else found


def divided(columns: Sequence[Columns], stops: Sequence[int]) -> Iterator[list[Columns]]:
    """Yield the parts of columns that follow each other up to each of `stops`."""
    parts = iter(columns)
    part, begin, at = next(parts), 0, 0
    end = len(part)
    for stop in stops:
        found: list[Columns] = []
        while end < stop:
            found.append(part.rows(at - begin, end - begin))
            part, begin = next(parts), end
            at, end = begin, begin + len(part)
        found.append(part.rows(at - begin, stop - begin))
        at = stop
        yield found


class Whole:
    """All rows, and their elements once somebody has asked for some."""

    __slots__ = ("made", "rows", "value")

    def __init__(self, value: Any, rows: int) -> None:
        self.value = value
        self.rows = rows
        self.made: list[Any] | None = None

    def elements(self) -> list[Any]:
        if self.made is None:
            self.made = rows_of(self.value, self.rows)
        return self.made


class Integers(Whole):
    """A range."""

    __slots__ = ("values",)

    value: Any

    def __init__(self, values: range) -> None:
        self.values = values
        self.rows = len(values)
        self.made = None

    def __getattr__(self, name: str) -> Any:
        if name != "value":  # which has no value yet
            raise AttributeError(name)
        self.value = np.arange(self.values.start, self.values.stop, self.values.step, dtype=np.int64)
        return self.value

    def elements(self) -> list[Any]:
        if self.made is None:
            self.made = list(self.values)
        return self.made


def is_plain(leaf: Any) -> bool:
    """Tell whether rows of an array, stacked, are always a part of such an array."""
    return type(leaf) is np.ndarray and leaf.ndim > 0 and leaf.dtype.kind in "biufc" and leaf.dtype.isnative


def concatenated(parts: Sequence[Columns], values: Sequence[Any]) -> Any:
    """Return rows of structures of the same arrays as one structure; `None` if they differ."""
    first = values[0]
    if isinstance(first, np.ndarray):
        arrays = cast("Sequence[npt.NDArray[Any]]", values)
        if len(parts) == 1:
            rows = parts[0].leaf(arrays[0])
            return joined([rows]) if rows.nbytes >= LARGE else rows.copy()
        dtype, shape = arrays[0].dtype, arrays[0].shape[1:]
        for array in arrays:
            if type(array) is not np.ndarray or array.dtype != dtype or array.shape[1:] != shape:
                return None
        pieces = [part.leaf(array) for part, array in zip(parts, arrays, strict=True)]
        return joined(pieces) if sum([piece.nbytes for piece in pieces]) >= LARGE else np.concatenate(pieces)
    levels = [open_level(value) for value in values]
    whole = levels[0]
    if whole is None or any(level is None or level.names != whole.names for level in levels):
        return None
    if any(type(value) is not type(first) for value in values):
        return None
    columns = zip(*[level.parts for level in levels if level is not None], strict=True)
    found = [concatenated(parts, column) for column in columns]
    return None if any(one is None for one in found) else whole.rebuild(found)
