"""NullableColumn: a column of numbers some of which are missing, as an array of numbers until rows are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

__all__ = ("NullableColumn",)

Array = npt.NDArray[Any]


@final
class NullableColumn:
    """Numbers, and which of them are `valid`; the rows of others are None.

    In a `ColumnBatch` it stands for an array of objects, NumPy's scalars and None.

    >>> column = NullableColumn(np.array([1, 0, 3]), np.array([True, False, True]))
    >>> list(column), column[2:].batch()
    ([np.int64(1), None, np.int64(3)], array([3]))
    """

    __slots__ = ("valid", "values")

    dtype = np.dtype(object)

    def __init__(self, values: Array, valid: npt.NDArray[np.bool_]) -> None:
        self.values = values
        self.valid = valid

    @staticmethod
    def joined(parts: Sequence[NullableColumn | Array]) -> NullableColumn | None:
        """Return consecutive parts, in which nothing is missing if they are arrays; `None` if their dtypes differ."""
        columns = [part if isinstance(part, NullableColumn) else NullableColumn.whole(part) for part in parts]
        if len({(column.values.dtype, column.values.ndim) for column in columns}) > 1:
            return None
        return NullableColumn(
            np.concatenate([column.values for column in columns]), np.concatenate([column.valid for column in columns])
        )

    @staticmethod
    def whole(values: Array) -> NullableColumn:
        """Return numbers none of which is missing."""
        return NullableColumn(values, np.ones(len(values), bool))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.valid.nbytes

    def __sizeof__(self) -> int:
        return self.nbytes

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> NullableColumn:
        return NullableColumn(self.values[index], self.valid[index])

    def __iter__(self) -> Iterator[Any]:
        return iter(self.objects().tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.objects()

    def objects(self) -> Array:
        """Return NumPy's scalars and None."""
        found = np.fromiter(self.values, object, len(self))
        found[~self.valid] = None
        return found

    def batch(self) -> Array:
        """Return what stacking the rows gives: numbers, or objects if one is missing."""
        return self.values.copy() if self.valid.all() else self.objects()
