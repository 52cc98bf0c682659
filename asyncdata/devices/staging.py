"""Staging: pinned host memory, to which arrays in other memory are copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncdata.devices.base import Device
from asyncdata.devices.pinned_memory import HostMemory, PinnedMemory
from asyncdata.elements.tensors import array_and_dtype, from_array_and_dtype, is_tensor

__all__ = ("StagedArrays", "Staging")

ALIGN: Final = 256
SLOT_UNIT: Final = 1 << 16
SMALL: Final = 1 << 16
"""Arrays of up to this many bytes are copied to the device as one, whose memory is in use as long as any of them is."""

NONE: Final[Mapping[int, int]] = MappingProxyType({})


class StagedArrays(NamedTuple):
    """The arrays of an element in memory that a device can read.

    `slot` is the memory to which some of them were copied. It begins with the small ones, which are copied to the
    device as one: `starts` has their offsets by index, and `packed` is that part of the slot.
    """

    arrays: Sequence[Any]
    slot: HostMemory | None = None
    starts: Mapping[int, int] = NONE
    packed: HostMemory | None = None

    def sources(self) -> Sequence[Any]:
        """Return the arrays that are copied to the device."""
        if self.packed is None:
            return self.arrays
        return [self.packed, *(array for place, array in enumerate(self.arrays) if place not in self.starts)]

    def parts(self, device: Device, copies: Sequence[Any]) -> Sequence[Any]:
        """Return the arrays on the device, given the copies of the sources."""
        if self.packed is None:
            return copies
        others = iter(copies[1:])
        small = device.parts(copies[0], [(start, self.arrays[place]) for place, start in self.starts.items()])
        by_place = dict(zip(self.starts, small, strict=True))
        return [by_place[place] if place in by_place else next(others) for place in range(len(self.arrays))]


class UnpinnedArray(NamedTuple):
    """An array that is not in pinned memory, and its size there in bytes.

    `dtype` is the name for `from_array_and_dtype` if a tensor is sent.
    """

    place: int
    array: npt.NDArray[Any]
    dtype: str | None
    size: int


class Staging:
    """Slots of pinned memory, which are reused when the device has read them."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.free: list[HostMemory] = []

    def pinned(self, leaves: Sequence[Any]) -> StagedArrays:
        """Return arrays in pinned memory, if the device is faster with that."""
        memory = self.device.pinned_memory
        if memory is None:
            return StagedArrays(leaves)
        arrays: list[Any] = []
        unpinned: list[UnpinnedArray] = []
        for place, leaf in enumerate(leaves):
            array, dtype = array_and_dtype(leaf) if is_tensor(leaf) else (np.asarray(leaf), None)
            arrays.append(memory.direct(array) if dtype is None else None)
            if arrays[-1] is None:
                unpinned.append(UnpinnedArray(place, array, dtype, aligned(array.nbytes)))
        return self.copied(memory, arrays, unpinned) if unpinned else StagedArrays(arrays)

    def copied(self, memory: PinnedMemory, arrays: list[Any], unpinned: list[UnpinnedArray]) -> StagedArrays:
        """Copy arrays to a slot, the small ones first, and put the copies in their places."""
        slot = self.slot(memory, sum(each.size for each in unpinned))
        starts, start, small = dict[int, int](), 0, 0
        for each in sorted(unpinned, key=lambda each: each.size > SMALL):
            array, dtype = each.array, each.array.dtype
            copy = np.ndarray(array.shape, dtype if dtype.isnative else dtype.newbyteorder("="), slot, start)
            np.copyto(copy, array)
            arrays[each.place] = copy if each.dtype is None else from_array_and_dtype(copy, each.dtype)
            if each.size <= SMALL:
                starts[each.place], small = start, start + each.size
            start += each.size
        return StagedArrays(arrays, slot) if len(starts) < 2 else StagedArrays(arrays, slot, starts, slot[:small])

    def slot(self, memory: PinnedMemory, need: int) -> HostMemory:
        """Return a slot of at least `need` bytes; a slot that is too small is dropped for it."""
        for place, slot in enumerate(self.free):
            if slot.nbytes >= need:
                return self.free.pop(place)
        if self.free:
            self.free.pop()
        return memory.allocate(-(-max(need, 1) // SLOT_UNIT) * SLOT_UNIT)

    def release_slot(self, read: StagedArrays) -> None:
        """Make the slot of arrays that the device has read available again."""
        if read.slot is not None:
            self.free.append(read.slot)


def aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN
