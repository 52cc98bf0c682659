"""ColumnBuffer: rows of arrays, copied into its own arrays, and taken out in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncdata.elements.columns import ColumnBatch, as_shared
from asyncdata.elements.structure import leaves_of, map_leaves, open_level
from asyncdata.runtime.block import Block

__all__ = ("ColumnBuffer",)

Places: TypeAlias = npt.NDArray[np.intp]

SMALL: Final = 1 << 11
"""Bytes of a row up to which it is quicker to copy it in and out than to make an element of it."""


class ColumnBuffer:
    """Rows like those of some columns, by place.

    >>> buffer = ColumnBuffer.like(ColumnBatch(np.array([3.0, 1.0, 2.0]), 3))
    >>> first, second, third = buffer.put([ColumnBatch(np.array([3.0, 1.0, 2.0]), 3)])
    >>> buffer.take(np.array([third, first])).elements()
    [np.float64(2.0), np.float64(3.0)]
    """

    def __init__(self, template: Any) -> None:
        self.template = template
        self.shape = shape_of(template)
        self.leaves = [np.empty((0, *leaf.shape[1:]), leaf.dtype) for leaf in leaves_of(template)]
        self.free = np.empty(0, np.intp)
        """Memory for every place; the first `spare` are free."""
        self.spare = 0

    @staticmethod
    def like(columns: ColumnBatch) -> ColumnBuffer | None:
        """Return an empty column buffer for rows like these; `None` if elements do better."""
        return None if columns.store.objects or columns.weight > SMALL else ColumnBuffer(columns.store.value)

    def put(self, parts: Sequence[ColumnBatch]) -> Places | None:
        """Copy rows to free places, and return those; `None` if some rows are of another kind."""
        if any(part.store.objects or shape_of(part.store.raw) != self.shape for part in parts):
            return None
        places = self.free_places(sum(map(len, parts)))
        begin = 0
        for part in parts:
            at = places[begin : begin + len(part)]
            for leaf, array in zip(self.leaves, leaves_of(part.store.raw), strict=True):
                leaf[at] = part.leaf(array)
            begin += len(part)
        return places

    def put_block(self, block: Block) -> Places | None:
        """Copy the elements of a block to free places, and return those; `None` if some are of another kind."""
        if block.columns:
            return self.put(block.columns)
        columns = None if block.failed else ColumnBatch.same_of(block.items)
        return None if columns is None else self.put([columns])

    def free_places(self, count: int) -> Places:
        """Return so many free places, of a larger column buffer if there are not enough."""
        if (missing := count - self.spare) > 0:
            size = len(self.leaves[0])
            more = max(missing, size)
            self.leaves = [enlarged(leaf, size + more) for leaf in self.leaves]
            self.free = np.concatenate([self.free[: self.spare], np.arange(size, size + more), self.free[self.spare :]])
            self.spare += more
        self.spare -= count
        return self.free[self.spare : self.spare + count].copy()

    def look(self, places: Places) -> ColumnBatch:
        pairs = zip(leaves_of(self.template), self.leaves, strict=True)
        leaves = iter([as_shared(like, leaf[places]) for like, leaf in pairs])
        return ColumnBatch(map_leaves(lambda _, where: next(leaves), self.template), len(places))

    def take(self, places: Places) -> ColumnBatch:
        """Return the rows at some places, which are free from then on."""
        rows = self.look(places)
        self.free[self.spare : self.spare + len(places)] = places
        self.spare += len(places)
        return rows


def enlarged(leaf: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    """Return an array with more rows, of the same byte order, which `np.concatenate` changes."""
    found = np.empty((rows, *leaf.shape[1:]), leaf.dtype)
    found[: len(leaf)] = leaf
    return found


def shape_of(value: Any) -> Any:
    """Return the properties that rows share: types, names, dtypes and shapes."""
    level = open_level(value)
    if level is None:
        return value.dtype, value.shape[1:]
    return type(value), level.names, [shape_of(part) for part in level.parts]
