"""PyTorch tensors as elements, or as leaves of them; the package never imports torch.

A program that has a tensor has imported it. What may be an element, and which values have parts, is in `tree`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from asyncdata.errors import StructureError

__all__ = (
    "any_tensor",
    "array_and_dtype",
    "as_array",
    "check_integers",
    "clone",
    "dataloader_hint",
    "dtype_name",
    "from_array",
    "from_array_and_dtype",
    "has_gradient",
    "is_dense",
    "is_numbers",
    "is_tensor",
    "is_tensor_like",
    "loaded",
    "numpy_dtype",
    "stack_tensors",
    "tensor_bytes",
    "tensor_class",
    "tensor_content",
    "tensor_of",
    "tensor_parts",
    "tensor_zeros",
)

NUMBERS: Final = frozenset("biufc")
"""The kinds of dtypes that tensors can have: booleans, integers, floats and complex numbers."""

NATIVE: Final = frozenset(
    [
        *("bool", "float16", "float32", "float64", "complex64", "complex128"),
        *[f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)],
    ]
)
"""Names of the dtypes that NumPy itself has, whatever packages have added to it."""

FLOATS: Final = frozenset(
    {"bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"}
)
"""Names of dtypes that NumPy does not have, ml_dtypes adds to it and torch has too."""

WIDER: Final = {**dict.fromkeys(FLOATS, "float32"), "complex32": "complex64"}
"""Dtypes that NumPy does not have, and the NumPy dtype that holds all their values."""


def tensor_class() -> type[Any] | None:
    """Return the class of PyTorch's tensors, if the program has imported it."""
    return getattr(sys.modules.get("torch"), "Tensor", None)


def is_tensor(value: Any) -> bool:
    """Return whether a value is a PyTorch tensor, or of a subclass."""
    kind = tensor_class()
    return kind is not None and isinstance(value, kind)


def is_tensor_like(value: Any) -> bool:
    """Return whether a value is a tensor, or several with one shape that torch treats as one, as a TensorDict."""
    return hasattr(cast("type[Any]", type(value)), "__torch_function__")


def is_numbers(value: Any) -> bool:
    """Return whether a value is an array of numbers or a NumPy number, those of ml_dtypes too, and not a masked
    array."""
    if not isinstance(value, (np.ndarray, np.generic)) or isinstance(value, np.ma.MaskedArray):
        return False
    dtype: np.dtype[Any] = cast("Any", value).dtype
    return dtype.kind in NUMBERS or dtype.type.__module__ == "ml_dtypes"


def any_tensor(values: Sequence[Any]) -> bool:
    """Return whether any value is a tensor."""
    return "torch" in sys.modules and any(map(is_tensor, values))


def dataloader_hint() -> str:
    """Return advice for PyTorch's DataLoader, if the program may be using one."""
    used = "torch.utils.data" in sys.modules
    return (
        "; pass dataset.to_torch() to PyTorch's DataLoader, with batch_size=None if its elements are batches"
        if used
        else ""
    )


def loaded() -> Any:
    """Return the module torch; `StructureError` if the program has not imported it."""
    torch = sys.modules.get("torch")
    if torch is None:
        raise StructureError("the element contains a PyTorch tensor, but torch is not imported: import torch first")
    return torch


def dtype_name(tensor: Any) -> str:
    """Return the name of a tensor's dtype, as "bfloat16"."""
    return str(tensor.dtype).removeprefix("torch.")


def numpy_dtype(tensor: Any) -> np.dtype[Any]:
    """Return the dtype of a tensor; `object` for one that NumPy does not have, also where ml_dtypes adds it."""
    name = dtype_name(tensor)
    return np.dtype(name if name in NATIVE else object)


def tensor_bytes(tensor: Any) -> int:
    """Return the size of a tensor's data in bytes."""
    return tensor.numel() * tensor.element_size()


def is_dense(tensor: Any) -> bool:
    """Return whether a tensor's data is in the host's memory, laid out as an array's."""
    kind = str(getattr(tensor, "layout", "torch.strided"))
    quantized = getattr(tensor, "is_quantized", False)
    nested = getattr(tensor, "is_nested", False)
    return tensor.device.type == "cpu" and kind == "torch.strided" and not quantized and not nested


def has_gradient(tensor: Any) -> bool:
    """Return whether a tensor is one that gradients are computed for, and not computed from others: copies of it are
    so, too."""
    return tensor.requires_grad and tensor.is_leaf


def plain(tensor: Any) -> Any:
    """Return a tensor on the CPU without its gradient, with lazy conjugation and negation resolved."""
    if not is_dense(tensor):
        raise StructureError(
            f"a tensor on device {tensor.device} with layout {tensor.layout} has no array: call .cpu() or .to_dense()"
        )
    return tensor.detach().resolve_conj().resolve_neg()


def as_array(tensor: Any) -> npt.NDArray[Any]:
    """Return a tensor as an array, which may share its memory; as float32 if NumPy does not have its dtype."""
    torch, name = loaded(), dtype_name(tensor)
    return plain(tensor if name not in WIDER else tensor.to(getattr(torch, WIDER[name]))).numpy()


def from_array(array: npt.NDArray[Any]) -> Any:
    """Return a tensor that shares the memory of an array."""
    return loaded().from_numpy(array)


def tensor_of(numbers: Any) -> Any:
    """Return numbers as a tensor on the CPU that shares their memory; a copy if they are read-only, or have a layout
    that a tensor cannot have. A tensor is returned without its gradient.
    """
    if is_tensor(numbers):
        return numbers.detach()
    array: npt.NDArray[Any] = np.asarray(numbers)
    whole = all(stride >= 0 and stride % array.itemsize == 0 for stride in array.strides)
    if not array.flags.writeable or not array.dtype.isnative or not whole:
        array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    return from_extended(array) if array.dtype.type.__module__ == "ml_dtypes" else from_array(array)


def from_extended(array: npt.NDArray[Any]) -> Any:
    """Return an array of ml_dtypes as a tensor; `TypeError` if torch does not have the dtype."""
    if array.dtype.name not in FLOATS:
        raise TypeError(f"torch has no {array.dtype.name}")
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return from_array_and_dtype(data.reshape(*array.shape, array.itemsize), array.dtype.name)


@cache
def torch_dtype(dtype: np.dtype[Any]) -> Any:
    """Return the PyTorch dtype for a NumPy dtype; `TypeError` if there is none."""
    return tensor_of(np.empty(0, dtype)).dtype


def tensor_parts(packed: Any, parts: Iterable[tuple[int, Any, Sequence[int], Sequence[int]]]) -> list[Any]:
    """Return views into a tensor of bytes: each has an offset in bytes, a dtype of NumPy or torch, a shape, and strides
    in items.

    The size in bytes and all offsets are multiples of every dtype's size.
    """
    views: dict[Any, tuple[Any, int]] = {}
    found: list[Any] = []
    for start, dtype, shape, strides in parts:
        if dtype not in views:
            view = packed.view(torch_dtype(dtype) if isinstance(dtype, np.dtype) else dtype)
            views[dtype] = view.as_strided, view.element_size()
        as_strided, size = views[dtype]
        found.append(as_strided(shape, strides, start // size))
    return found


def clone(tensor: Any) -> Any:
    """Return a copy of a tensor, which cannot be made read-only; what was computed comes without its gradient."""
    copy = tensor.detach().clone()
    return copy.requires_grad_() if is_tensor(tensor) and has_gradient(tensor) else copy


def array_and_dtype(tensor: Any) -> tuple[npt.NDArray[Any], str]:
    """Return a tensor's data as an array; if NumPy does not have its dtype, as bytes with the dtype's name."""
    if numpy_dtype(tensor).kind != "O":
        return as_array(tensor), ""
    data = plain(tensor).contiguous().reshape(-1).view(loaded().uint8).numpy()
    return data.reshape(*tensor.shape, tensor.element_size()), dtype_name(tensor)


def from_array_and_dtype(array: npt.NDArray[Any], name: str, gradient: bool = False) -> Any:
    """Return the tensor for a result of `array_and_dtype`, with `gradient` one that gradients are computed for."""
    tensor = without_gradient(array, name)
    return tensor.requires_grad_() if gradient else tensor


def without_gradient(array: npt.NDArray[Any], name: str) -> Any:
    torch = loaded()
    if not name:
        return torch.from_numpy(array)
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise StructureError(f"this version of torch has no dtype {name!r:.40}: install one that has it")
    return torch.from_numpy(array).reshape(-1).view(dtype).reshape(array.shape[:-1])


def tensor_content(tensor: Any) -> tuple[Any, ...]:
    """Return a hashable key, equal for tensors of equal dtype, shape and numbers."""
    array, _ = array_and_dtype(tensor)
    return ("tensor", dtype_name(tensor), tuple(tensor.shape), array.tobytes())


def stack_tensors(column: Sequence[Any]) -> Any:
    """Stack tensors of one shape, without their gradients."""
    try:
        made = loaded().stack([tensor.detach() for tensor in column])
    except RuntimeError as error:
        raise StructureError(f"torch cannot stack these tensors: {error}") from None
    if any(getattr(tensor, "dtype", None) != getattr(made, "dtype", None) for tensor in column):
        for place, (tensor, row) in enumerate(zip(column, made, strict=True)):
            check_integers(tensor, row, place)
    return made


def check_integers(tensor: Any, row: Any, place: int) -> None:
    """Raise `StructureError` if integers of an element have changed in a row of floats."""
    if tensor.dtype == row.dtype or not (row.is_floating_point() or row.is_complex()):
        return
    if tensor.is_floating_point() or tensor.is_complex():
        return
    real = row.real if row.is_complex() else row
    if not ((real.to(tensor.dtype) == tensor) & (real.double() < 2.0**63)).all():
        raise StructureError(
            f"the tensor of element {place} of the batch has dtype {tensor.dtype}, and would change as {row.dtype}, "
            "which holds the others: give all one dtype, with .to in a map"
        )


def tensor_zeros(tensor: Any) -> Any:
    """Return zeros like a tensor."""
    return loaded().zeros_like(tensor.detach())
