"""Staging: pinned memory of the host, into which arrays are copied that lie elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from asyncdata.devices.base import Device, HostMemory
from asyncdata.tensors import array_and_dtype, from_array_and_dtype, is_tensor

__all__ = ("OnHost", "Staging")

ALIGN: Final = 256
ROOM: Final = 1 << 16


class OnHost(NamedTuple):
    """Arrays as a device may read them, and the slot that they lie in, if they were copied."""

    arrays: Sequence[Any]
    slot: HostMemory | None


class Staging:
    """Slots of pinned memory, which are used again when the device has read them."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.free: list[HostMemory] = []

    def pinned(self, leaves: Sequence[Any]) -> OnHost:
        """Return arrays in pinned memory, if the device is faster with that."""
        if not self.device.staged or not leaves:
            return OnHost(leaves, None)
        parts = [array_and_dtype(leaf) if is_tensor(leaf) else (np.asarray(leaf), "") for leaf in leaves]
        slot = self.slot(sum(aligned(array.nbytes) for array, _ in parts))
        arrays: list[Any] = []
        start = 0
        for leaf, (array, dtype) in zip(leaves, parts, strict=True):
            copy = np.ndarray(array.shape, array.dtype.newbyteorder("="), slot, start)
            np.copyto(copy, array)
            arrays.append(from_array_and_dtype(copy, dtype) if is_tensor(leaf) else copy)
            start += aligned(array.nbytes)
        return OnHost(arrays, slot)

    def slot(self, need: int) -> HostMemory:
        """Return a slot of so many bytes; one that is too small makes way for it."""
        for place, slot in enumerate(self.free):
            if slot.nbytes >= need:
                return self.free.pop(place)
        if self.free:
            self.free.pop()
        return self.device.pinned(-(-max(need, 1) // ROOM) * ROOM)

    def give_back(self, read: OnHost) -> None:
        """Take back the slot of arrays that the device has read."""
        if read.slot is not None:
            self.free.append(read.slot)


def aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN
