"""Batches of tensors in workers: stacked where they are sent from.

PyTorch's function for tensors stacks them, in a worker, into shared memory that is new for each batch. Here the batch
would be copied from there once more.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from math import prod
from typing import Any

import numpy as np

from asyncdata.elements.tensors import is_dense
from asyncdata.memory.output_buffers import MIN_BYTES, empty
from asyncdata.torch.internals import collate_functions_of_all, collate_tensors, torch

__all__ = ("stacked", "stacking_in_place")


@contextmanager
def stacking_in_place() -> Generator[None]:
    """Have `default_collate` stack tensors by `stacked`, unless the program gave it another function for them."""
    known = collate_functions_of_all()
    if known.get(torch.Tensor) is not collate_tensors:
        yield
        return
    known[torch.Tensor] = stacked
    try:
        yield
    finally:
        known[torch.Tensor] = collate_tensors


def stacked(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Return the batch of PyTorch's own function; whatever that refuses is refused by it."""
    first = batch[0]
    if type(first) is torch.Tensor and is_dense(first) and first.device.type == "cpu":
        with suppress(RuntimeError):
            return torch.stack(batch, 0, out=room_for((len(batch), *first.shape), first.dtype))
    return collate_tensors(batch, collate_fn_map=collate_fn_map)


def room_for(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return a tensor to be filled, where it need not be copied when it is sent."""
    size = prod(shape) * dtype.itemsize
    if size < MIN_BYTES:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(empty(size, np.uint8)).view(dtype).view(shape)
