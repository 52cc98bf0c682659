"""Columns: tuples that lie in arrays, one for each part, until somebody wants the tuples themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

__all__ = ("Columns",)


@final
class Columns:
    """Elements `start` to `stop` of tuples that lie in columns, arrays of one length.

    The tuples are made at most once, all together, however they are taken; a batch needs none.

    >>> columns = Columns([np.array([1, 2, 3]), np.array([b"a", b"b", b"c"], object)])
    >>> list(columns[1:])
    [(np.int64(2), b'b'), (np.int64(3), b'c')]
    >>> Columns.stacked([columns[2:], columns[:1]])
    (array([3, 1]), array([b'c', b'a'], dtype=object))
    """

    __slots__ = ("start", "stop", "whole")

    def __init__(self, arrays: Sequence[NDArray[Any]]) -> None:
        self.whole = Whole(arrays)
        self.start = 0
        self.stop = len(arrays[0])

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, span: slice[int | None, int | None, None]) -> Columns:
        start, stop, _ = span.indices(len(self))
        part = Columns.__new__(Columns)
        part.whole, part.start, part.stop = self.whole, self.start + start, self.start + max(start, stop)
        return part

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.tuples())

    def __repr__(self) -> str:
        return f"Columns({self.tuples()!r})"

    def tuples(self) -> list[tuple[Any, ...]]:
        """Return the elements."""
        return self.whole.tuples()[self.start : self.stop]

    def arrays(self) -> list[NDArray[Any]]:
        """Return the columns, as views."""
        return [array[self.start : self.stop] for array in self.whole.arrays]

    @staticmethod
    def stacked(parts: Sequence[Columns]) -> tuple[NDArray[Any], ...]:
        """Return the columns of parts that follow each other, in arrays of their own."""
        return tuple([np.concatenate(pieces) for pieces in zip(*[part.arrays() for part in parts], strict=True)])


class Whole:
    """All the columns, and their tuples once somebody has asked for some."""

    __slots__ = ("arrays", "made")

    def __init__(self, arrays: Sequence[NDArray[Any]]) -> None:
        self.arrays = arrays
        self.made: list[tuple[Any, ...]] | None = None

    def tuples(self) -> list[tuple[Any, ...]]:
        if self.made is None:
            self.made = list(zip(*map(list, self.arrays), strict=True))
        return self.made
