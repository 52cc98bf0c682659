"""borrowed: rows of arrays in memory of another package, which elements must not share."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncdata.elements.column_store import ColumnStore
from asyncdata.elements.columns import ColumnBatch
from asyncdata.elements.structure import map_leaves

__all__ = ("borrowed", "writable")


def borrowed(value: Any, rows: int) -> ColumnBatch:
    """Return rows of arrays, some of them read-only memory of another package; the arrays in elements are not."""
    return ColumnBatch.of_store(BorrowedColumns(value, rows))


class BorrowedColumns(ColumnStore):
    """Rows in memory of another package, which elements must not share: its arrays are copied when they are needed.
    A batch copies its rows anyway."""

    __slots__ = ("lent",)

    value: Any

    def __init__(self, lent: Any, rows: int) -> None:
        self.lent = lent
        self.rows = rows
        self.given, self.owned = 0, False
        self.items = None

    @property
    def raw(self) -> Any:
        return self.lent

    def __getattr__(self, name: str) -> Any:
        if name != "value":  # `value` is not set yet
            raise AttributeError(name)
        self.value = self.lent = writable(self.lent)
        return self.value


def writable(value: Any) -> Any:
    """Return a structure of arrays with copies of those whose rows are read-only arrays."""
    return map_leaves(lambda leaf, _: leaf.copy() if lends(leaf) else leaf, value)


def lends(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.ndim > 1 and not leaf.flags.writeable
