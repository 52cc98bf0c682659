"""Ragged: rows of different lengths as one array and the splits between rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final, overload

import numpy as np
import numpy.typing as npt

from asyncdata.errors import StructureError

__all__ = ("Ragged",)

Array = npt.NDArray[Any]


@final
class Ragged:
    """Rows of different lengths, one after another in `values`; row i is `values[row_splits[i]:row_splits[i + 1]]`.

    Like tf.RaggedTensor with one ragged axis, the second. Rows are views, and so is a slice without a step, which is
    again a `Ragged`. `unbatch` and `from_tensor_slices` split it into rows.

    >>> import asyncdata as ad
    >>> import numpy as np
    >>> ragged = ad.Ragged(np.array([1, 2, 3]), np.array([0, 1, 1, 3]))
    >>> ragged
    Ragged([[1], [], [2, 3]])
    >>> len(ragged), ragged[2], ragged.shape
    (3, array([2, 3]), (3, None))
    >>> ragged[1:]
    Ragged([[], [2, 3]])
    >>> ragged.dtype == ragged.values.dtype, ragged.nbytes == ragged.values.nbytes + ragged.row_splits.nbytes
    (True, True)
    """

    __slots__ = ("row_splits", "values")

    values: Array
    """The rows, one after another along the first axis."""

    row_splits: Array
    """The beginning of each row, and the end of the last one: one more value than there are rows."""

    def __init__(self, values: npt.ArrayLike, row_splits: npt.ArrayLike) -> None:
        values, row_splits = np.asanyarray(values), np.asarray(row_splits)
        if row_splits.ndim != 1 or row_splits.dtype.kind not in "iu" or not values.ndim:
            raise StructureError(f"Ragged needs values with an axis, and a list of row splits, got {row_splits!r:.80}")
        ends = not len(row_splits) or row_splits[0] != 0 or row_splits[-1] != len(values)
        if ends or (row_splits[1:] < row_splits[:-1]).any():
            raise StructureError(f"Ragged row splits must go up from 0 to {len(values)}, got {row_splits!r:.80}")
        self.values = values
        self.row_splits = row_splits

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    @overload
    def __getitem__(self, index: int) -> Array: ...

    @overload
    def __getitem__(self, index: slice) -> Ragged: ...

    def __getitem__(self, index: int | slice) -> Array | Ragged:
        rows = range(len(self))[index]
        if isinstance(rows, int):
            return self.values[self.row_splits[rows] : self.row_splits[rows + 1]]
        if rows.step == 1:
            splits = self.row_splits[rows.start : max(rows.start, rows.stop) + 1]
            return Ragged(self.values[splits[0] : splits[-1]], splits - splits[0])
        arrays = [self[row] for row in rows]
        return Ragged(np.concatenate([self.values[:0], *arrays]), np.cumsum([0, *map(len, arrays)]))

    def __iter__(self) -> Iterator[Array]:
        return map(self.__getitem__, range(len(self)))

    def to_list(self) -> list[Any]:
        """Return the rows as lists.

        >>> import asyncdata as ad
        >>> import numpy as np
        >>> ad.Ragged(np.array([1, 2, 3]), np.array([0, 1, 1, 3])).to_list()
        [[1], [], [2, 3]]
        """
        return [row.tolist() for row in self]

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The number of rows, `None` for their lengths, and the shape of an item."""
        return (len(self), None, *self.values.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        return self.values.dtype

    @property
    def nbytes(self) -> int:
        """The size of the values and the splits in bytes."""
        return self.values.nbytes + self.row_splits.nbytes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ragged):
            return NotImplemented
        return (
            self.dtype == other.dtype
            and np.array_equal(self.row_splits, other.row_splits)
            and np.array_equal(self.values, other.values)
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"Ragged({self.to_list()})"
