"""Arrays of a batch as tensors of PyTorch."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from asyncdata.errors import StructureError
from asyncdata.structure import leaf, map_leaves
from asyncdata.tensors import from_array

__all__ = ("to_tensors",)

NUMBERS: Final = "biufc"
"""Kinds of dtypes of which tensors can be: booleans, integers, floats and complex numbers."""


def to_tensors(value: Any) -> Any:
    """Return a structure with tensors in place of arrays and NumPy scalars of numbers; other leaves stay as they are.

    A tensor has its array's memory. An array that is read-only, or lies in memory as no tensor can, is copied.
    """
    return map_leaves(as_tensor, value)


def as_tensor(value: Any, where: str) -> Any:
    """Return one leaf, as a tensor if it is an array of numbers."""
    if not is_numbers(value):
        return value
    try:
        return from_array(as_torch_has_it(np.asarray(value)))
    except TypeError as error:
        raise StructureError(f"{leaf(where)} has dtype {value.dtype}, of which torch has no tensors: {error}") from None


def is_numbers(value: Any) -> bool:
    """Tell whether a value is an array of numbers, or a number of NumPy's; a masked array is none."""
    dtype: Any = getattr(value, "dtype", None)
    return (type(value) is np.ndarray or isinstance(value, np.generic)) and dtype.kind in NUMBERS


def as_torch_has_it(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array that can be written to, in the machine's byte order and without negative strides."""
    if array.flags.writeable and array.dtype.isnative and min(array.strides, default=0) >= 0:
        return array
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
