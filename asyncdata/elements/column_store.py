"""ColumnStore: all rows that a `ColumnBatch` is a part of, as arrays and as elements, each made when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from asyncdata.elements.structure import rows_of

__all__ = ("ColumnStore", "IntegerColumn", "LazyColumnStore")


class ColumnStore:
    """All rows, and their elements once some were requested.

    `owned` if nothing else refers to the arrays, except the rows before `given`, which were passed on.
    """

    __slots__ = ("given", "items", "owned", "rows", "value")

    objects: ClassVar[bool] = False
    """Whether the elements are Python objects, to which rows of the arrays are not equal in type; `at` gives some."""

    def __init__(self, value: Any, rows: int, owned: bool = False) -> None:
        self.value = value
        self.rows = rows
        self.owned = owned
        self.given = 0
        self.items: list[Any] | None = None

    @property
    def raw(self) -> Any:
        """The arrays, for a reader that only copies of them: some may be read-only, where those of `value` are not."""
        return self.value

    def elements(self) -> list[Any]:
        if self.items is None:
            self.items = rows_of(self.value, self.rows)
        return self.items

    def at(self, places: Sequence[int]) -> ColumnStore:
        """Return the rows at some indices."""
        raise NotImplementedError


class LazyColumnStore(ColumnStore):
    """Rows whose elements and arrays are both made when they are needed."""

    __slots__ = ("make", "make_value", "weight")

    value: Any

    def __init__(self, rows: int, weight: int, make: Callable[[], list[Any]], make_value: Callable[[], Any]) -> None:
        self.rows = rows
        self.weight = weight
        self.make = make
        self.make_value = make_value
        self.given, self.owned = 0, True
        self.items = None

    def __getattr__(self, name: str) -> Any:
        if name != "value":  # `value` is not set yet
            raise AttributeError(name)
        self.value = self.make_value()
        return self.value

    def elements(self) -> list[Any]:
        self.items = self.items or self.make()
        return self.items


class IntegerColumn(LazyColumnStore):
    """Python integers, most likely a range."""

    __slots__ = ("values",)

    objects = True

    def __init__(self, values: Sequence[int]) -> None:
        super().__init__(len(values), 8, lambda: list(values), lambda: integers(values))
        self.values = values
        self.owned = False

    def at(self, places: Sequence[int]) -> IntegerColumn:
        if isinstance(places, range) and isinstance(self.values, range):
            return IntegerColumn(self.values[places.start : places.stop : places.step])
        return IntegerColumn([self.values[place] for place in places])


def integers(values: Sequence[int]) -> npt.NDArray[np.int64]:
    if isinstance(values, range):
        return np.arange(values.start, values.stop, values.step, dtype=np.int64)
    return np.array(values, np.int64)
