"""ragged_batch: consecutive elements as one, arrays of different lengths as rows of a `Ragged`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from asyncdata.elements.promotion import in_one_dtype
from asyncdata.elements.ragged import Ragged
from asyncdata.elements.spec import RaggedTensorSpec, TensorSpec
from asyncdata.elements.structure import array_of, check_joined, leaf, map_leaves, stack
from asyncdata.elements.tensors import any_tensor, is_tensor
from asyncdata.elements.validation import check_dtype
from asyncdata.errors import PlanError, StructureError
from asyncdata.graph.node import Node
from asyncdata.transforms.batch import Batch
from asyncdata.transforms.padded_batch import are_sequences, join_leaves

__all__ = ("RaggedBatch",)

Array = npt.NDArray[Any]

SPLITS: Final = ("int64", "int32")


@dataclass(frozen=True, eq=False)
class RaggedBatch(Batch):
    """Every `size` consecutive elements as one, leaves that are arrays as rows of a `Ragged`."""

    splits: str = field(default=SPLITS[0], repr=False)

    stacks = False

    @staticmethod
    def of(plan: Node, size: int, drop_remainder: bool, row_splits_dtype: npt.DTypeLike) -> RaggedBatch:
        """Return the node; `PlanError` if splits cannot have this dtype."""
        try:
            name = check_dtype("ragged_batch(row_splits_dtype=)", row_splits_dtype).name
        except PlanError:
            name = None
        if name not in SPLITS:
            raise PlanError(f"ragged_batch(row_splits_dtype=) must be int64 or int32, got {row_splits_dtype!r}")
        return RaggedBatch(plan, size, drop_remainder, name)

    @property
    def kind(self) -> str:
        return "ragged_batch"

    def join(self, items: list[Any]) -> Any:
        return join_leaves(items, self.leaf, "")

    def leaf(self, column: list[Any], where: str) -> Any:
        """Return one leaf of every element as rows; leaves without an axis are stacked as in a batch."""
        if are_sequences(column):
            return Ragged(np.concatenate(column), self.row_splits(column))
        if any_tensor(column) and any(tensor.ndim for tensor in column if is_tensor(tensor)):
            raise StructureError(
                f"{leaf(where)} is a tensor, but a Ragged is made of arrays: call .numpy() on it in a map, or use "
                "padded_batch"
            )
        if any_tensor(column) or not any(map(is_array, column)):
            return stack(column, where)
        check_joined(column, where)
        arrays: list[Array] = [
            cast("Array", value) if isinstance(value, np.ndarray) else array_of(value, index, where)
            for index, value in enumerate(column)
        ]
        return self.rows(arrays, where) if any(array.ndim for array in arrays) else stack(column, where)

    def rows(self, arrays: Sequence[Array], where: str) -> Ragged:
        """Return arrays that differ in the length of their first axis alone as rows."""
        inner = [array.shape[1:] if array.ndim else None for array in arrays]
        if inner.count(inner[0]) != len(arrays):
            odd = next(index for index, shape in enumerate(inner) if shape != inner[0])
            raise StructureError(
                f"{leaf(where)} of element {odd} of the batch has shape {arrays[odd].shape}, that of element 0 has "
                f"shape {arrays[0].shape}; only the first size may differ"
            )
        masked = any(isinstance(array, np.ma.MaskedArray) for array in arrays)
        join: Callable[..., Array] = cast("Any", np.ma).concatenate if masked else np.concatenate
        return Ragged(join(in_one_dtype(arrays, leaf(where))), self.row_splits(arrays))

    def row_splits(self, arrays: Sequence[Array]) -> Array:
        """Return where each row begins, and where the last one ends."""
        splits = np.zeros(len(arrays) + 1, self.splits)
        np.cumsum([*map(len, arrays)], out=splits[1:])
        return splits

    @property
    def signature(self) -> Any:
        size = self.size if self.drop_remainder else None

        def ragged(spec: TensorSpec, _: str) -> TensorSpec:
            if not spec.shape or isinstance(spec, RaggedTensorSpec):
                return TensorSpec(None, spec.dtype) if spec.shape is None else spec.stacked(size)
            return RaggedTensorSpec((size, None, *spec.shape[1:]), spec.dtype)

        return None if self.input.signature is None else map_leaves(ragged, self.input.signature)

    def label(self) -> str:
        return f"ragged_batch({self.size}{', drop_remainder=True' if self.drop_remainder else ''})"


def is_array(value: Any) -> bool:
    """Return whether a leaf is, or can be read as, an array that may have axes."""
    if isinstance(value, (np.ndarray, list)):
        return True
    return hasattr(value, "__array__") and not isinstance(value, (np.generic, type))
