"""Staging: pinned memory of the host, into which arrays are copied that lie elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from asyncdata.devices.base import Device
from asyncdata.devices.pinned_memory import Array, HostMemory, PinnedMemory
from asyncdata.elements.tensors import array_and_dtype, from_array_and_dtype, is_tensor

__all__ = ("OnHost", "Staging")

ALIGN: Final = 256
ROOM: Final = 1 << 16


class OnHost(NamedTuple):
    """Arrays as a device may read them, and the slot that some of them were copied to."""

    arrays: Sequence[Any]
    slot: HostMemory | None


class Staging:
    """Slots of pinned memory, which are used again when the device has read them."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.free: list[HostMemory] = []

    def pinned(self, leaves: Sequence[Any]) -> OnHost:
        """Return arrays in pinned memory, if the device is faster with that."""
        memory = self.device.pinned_memory
        if memory is None:
            return OnHost(leaves, None)
        arrays: list[Array | None] = [None if is_tensor(leaf) else memory.direct(np.asarray(leaf)) for leaf in leaves]
        elsewhere = {
            place: array_and_dtype(leaf) if is_tensor(leaf) else (np.asarray(leaf), "")
            for place, leaf in enumerate(leaves)
            if arrays[place] is None
        }
        if not elsewhere:
            return OnHost(arrays, None)
        slot = self.slot(memory, sum(aligned(array.nbytes) for array, _ in elsewhere.values()))
        start = 0
        for place, (array, dtype) in elsewhere.items():
            copy = np.ndarray(array.shape, array.dtype.newbyteorder("="), slot, start)
            np.copyto(copy, array)
            arrays[place] = from_array_and_dtype(copy, dtype) if is_tensor(leaves[place]) else copy
            start += aligned(array.nbytes)
        return OnHost(arrays, slot)

    def slot(self, memory: PinnedMemory, need: int) -> HostMemory:
        """Return a slot of so many bytes; one that is too small makes way for it."""
        for place, slot in enumerate(self.free):
            if slot.nbytes >= need:
                return self.free.pop(place)
        if self.free:
            self.free.pop()
        return memory.allocate(-(-max(need, 1) // ROOM) * ROOM)

    def give_back(self, read: OnHost) -> None:
        """Take back the slot of arrays that the device has read."""
        if read.slot is not None:
            self.free.append(read.slot)


def aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN
