"""Arrays of a batch as tensors of PyTorch."""

from __future__ import annotations

from typing import Any

from asyncdata.elements.structure import leaf, map_leaves
from asyncdata.elements.tensors import is_numbers, tensor_of
from asyncdata.errors import StructureError

__all__ = ("to_tensors",)


def to_tensors(value: Any) -> Any:
    """Return a structure with tensors in place of numeric arrays and NumPy scalars; other leaves stay as they are.

    A tensor shares its array's memory. An array that is read-only, or has strides that tensors lack, is copied.
    """
    return map_leaves(as_tensor, value)


def as_tensor(value: Any, where: str) -> Any:
    """Return one leaf, as a tensor if it is an array of numbers."""
    if not is_numbers(value):
        return value
    try:
        return tensor_of(value)
    except TypeError as error:
        raise StructureError(f"{leaf(where)} has dtype {value.dtype}, of which torch has no tensors: {error}") from None
