"""Tensors of PyTorch for the memory of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncdata.tensors import is_tensor

__all__ = ("tensor_of",)


def tensor_of(torch: Any, leaf: Any) -> Any:
    """Return a tensor on the CPU that looks into the memory of an array; into a copy where it may not be written to."""
    if is_tensor(leaf):
        return leaf.detach()
    array = np.asarray(leaf)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable or any(step < 0 for step in array.strides):
        array = array.copy()
    return torch.from_numpy(array)
