"""Staging: pinned memory of the host, into which arrays are copied that lie elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncdata.devices.base import Device
from asyncdata.devices.pinned_memory import HostMemory, PinnedMemory
from asyncdata.elements.tensors import array_and_dtype, from_array_and_dtype, is_tensor

__all__ = ("OnHost", "Staging")

ALIGN: Final = 256
ROOM: Final = 1 << 16
SMALL: Final = 1 << 16
"""Arrays of up to so many bytes are copied to the device as one, whose memory is taken for as long as one is used."""

NONE: Final[Mapping[int, int]] = MappingProxyType({})


class OnHost(NamedTuple):
    """The arrays of an element as a device may read them.

    `slot` is the memory that some of them were copied to. It begins with the small ones, which are copied to the device
    as one: `starts` tells where they begin, by their places, and `packed` is that part of the slot.
    """

    arrays: Sequence[Any]
    slot: HostMemory | None = None
    starts: Mapping[int, int] = NONE
    packed: HostMemory | None = None

    def sources(self) -> Sequence[Any]:
        """Return what is copied to the device."""
        if self.packed is None:
            return self.arrays
        return [self.packed, *(array for place, array in enumerate(self.arrays) if place not in self.starts)]

    def parts(self, device: Device, copies: Sequence[Any]) -> Sequence[Any]:
        """Return the arrays on the device, of the copies of the sources."""
        if self.packed is None:
            return copies
        others = iter(copies[1:])
        small = device.parts(copies[0], [(start, self.arrays[place]) for place, start in self.starts.items()])
        by_place = dict(zip(self.starts, small, strict=True))
        return [by_place[place] if place in by_place else next(others) for place in range(len(self.arrays))]


class Elsewhere(NamedTuple):
    """An array that does not lie in pinned memory, and the bytes that it takes there.

    `dtype` is the name for `from_array_and_dtype` if a tensor is sent.
    """

    place: int
    array: npt.NDArray[Any]
    dtype: str | None
    room: int


class Staging:
    """Slots of pinned memory, which are used again when the device has read them."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.free: list[HostMemory] = []

    def pinned(self, leaves: Sequence[Any]) -> OnHost:
        """Return arrays in pinned memory, if the device is faster with that."""
        memory = self.device.pinned_memory
        if memory is None:
            return OnHost(leaves)
        arrays: list[Any] = []
        elsewhere: list[Elsewhere] = []
        for place, leaf in enumerate(leaves):
            array, dtype = array_and_dtype(leaf) if is_tensor(leaf) else (np.asarray(leaf), None)
            arrays.append(memory.direct(array) if dtype is None else None)
            if arrays[-1] is None:
                elsewhere.append(Elsewhere(place, array, dtype, aligned(array.nbytes)))
        return self.copied(memory, arrays, elsewhere) if elsewhere else OnHost(arrays)

    def copied(self, memory: PinnedMemory, arrays: list[Any], elsewhere: list[Elsewhere]) -> OnHost:
        """Copy arrays to a slot, the small ones first, and put the copies in their places."""
        slot = self.slot(memory, sum(each.room for each in elsewhere))
        starts, start, small = dict[int, int](), 0, 0
        for each in sorted(elsewhere, key=lambda each: each.room > SMALL):
            array, dtype = each.array, each.array.dtype
            copy = np.ndarray(array.shape, dtype if dtype.isnative else dtype.newbyteorder("="), slot, start)
            np.copyto(copy, array)
            arrays[each.place] = copy if each.dtype is None else from_array_and_dtype(copy, each.dtype)
            if each.room <= SMALL:
                starts[each.place], small = start, start + each.room
            start += each.room
        return OnHost(arrays, slot) if len(starts) < 2 else OnHost(arrays, slot, starts, slot[:small])

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
