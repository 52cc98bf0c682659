"""Default values: zeros for missing elements, with their shapes and types."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from asyncdata.elements.ragged import Ragged
from asyncdata.elements.spec import RaggedTensorSpec, TensorSpec
from asyncdata.elements.structure import map_leaves, objects
from asyncdata.elements.tensors import is_tensor, tensor_zeros

__all__ = ("zeros_like", "zeros_of")


def zeros_like(value: Any) -> Any:
    """Return the structure with zeros of the same shapes and types: empty strings, `None` for other objects."""
    return map_leaves(lambda part, _: zero(part), value)


def zeros(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.zeros(array.shape, array.dtype)


def zero(part: Any) -> Any:
    kind: type[Any] = type(part)  # pyright: ignore[reportUnknownVariableType]
    if issubclass(kind, np.ndarray):
        return objects([zero(one) for one in part.ravel()]).reshape(part.shape) if part.dtype == object else zeros(part)
    if issubclass(kind, np.generic):
        return np.zeros((), part.dtype)[()]
    if kind is list:
        return [zero(one) for one in part]
    if kind is Ragged:
        return Ragged(zero(part.values), part.row_splits)
    if is_tensor(part):
        return tensor_zeros(part)
    return kind() if issubclass(kind, (bool, int, float, complex, str, bytes, bytearray)) else None


def zeros_of(signature: Any) -> Any:
    """Return zeros for a signature; an unknown dimension has size 0."""

    def make(spec: TensorSpec, _: str) -> Any:
        if spec.dtype == object and not spec.shape:
            return None
        if isinstance(spec, RaggedTensorSpec):
            rows, *inner = [size or 0 for size in (spec.shape or (0, 0))]
            return Ragged(np.zeros(inner, spec.dtype), np.zeros(rows + 1, np.int64))
        array = np.zeros([size or 0 for size in spec.shape or ()], spec.dtype)
        return array if array.ndim else array[()]

    return map_leaves(make, signature)
