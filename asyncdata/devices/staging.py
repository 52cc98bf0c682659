"""Staging: pinned host memory, to which arrays in other memory are copied.

Reasons and measurements: docs/design.md, "Devices".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from asyncdata.devices.base import Device
from asyncdata.devices.packed_layout import PackedLayout, aligned, host_array, kinds_of
from asyncdata.devices.pinned_memory import Array, HostMemory, PinnedMemory
from asyncdata.elements.tensors import from_array_and_dtype
from asyncdata.memory.memcpy import Helpers, copy_arrays

__all__ = ("StagedArrays", "Staging")

SLOT_UNIT: Final = 1 << 16


class StagedArrays(NamedTuple):
    """The arrays of an element in memory that a device can read.

    `slot` is the memory to which some of them were copied. It begins with the small ones, whose places `layout` has:
    they are copied to the device as one, which is the first of `sources`.
    """

    sources: Sequence[Any]
    """The arrays that are copied to the device."""
    slot: HostMemory | None = None
    layout: PackedLayout | None = None

    def parts(self, device: Device, copies: Sequence[Any]) -> Sequence[Any]:
        """Return the arrays on the device, given the copies of the sources."""
        layout = self.layout
        if layout is None or not layout.small:
            return copies
        small = device.parts(copies[0], layout.parts)
        if not layout.large:
            return small
        found = dict(zip(layout.small, small, strict=True)) | dict(zip(layout.large, copies[1:], strict=True))
        return [found[place] for place in range(len(found))]


class UnpinnedArray(NamedTuple):
    """A large array that is not in pinned memory, and its place among the sources.

    `dtype` is the name for `from_array_and_dtype` if a tensor is sent.
    """

    number: int
    array: Array
    dtype: str | None


class Staging:
    """Slots of pinned memory, which are reused when the device has read them."""

    def __init__(self, device: Device, helpers: Helpers | None = None) -> None:
        self.device = device
        self.helpers = helpers
        """Threads that help to copy large arrays."""
        self.free: list[HostMemory] = []
        self.layout = PackedLayout([])
        """The layout of the last element, which the next one most likely has too."""

    def pinned(self, leaves: Sequence[Any]) -> StagedArrays:
        """Return arrays in pinned memory, if the device is faster with that."""
        memory = self.device.pinned_memory
        if memory is None:
            return StagedArrays(leaves)
        if kinds_of(leaves) != self.layout.kinds:
            self.layout = PackedLayout(leaves)
        layout = self.layout
        sources: list[Any] = [None] if layout.small else []
        unpinned: list[UnpinnedArray] = []
        for place in layout.large:
            array, dtype = host_array(leaves[place])
            sources.append(memory.direct(array) if dtype is None else None)
            if sources[-1] is None:
                unpinned.append(UnpinnedArray(len(sources) - 1, array, dtype))
        if not unpinned and not layout.small:
            return StagedArrays(sources)
        slot = self.slot(memory, layout.size + sum(aligned(each.array.nbytes) for each in unpinned))
        if layout.small:
            sources[0] = slot[: layout.size]
            layout.pack(leaves, sources[0])
        copy_large(unpinned, slot, layout.size, sources, self.helpers)
        return StagedArrays(sources, slot, layout)

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


def copy_large(
    unpinned: Sequence[UnpinnedArray], slot: HostMemory, start: int, sources: list[Any], helpers: Helpers | None
) -> None:
    """Copy arrays to a slot, from an offset on, and put the copies in their places."""
    pairs: list[tuple[Array, Array]] = []
    for place, array, dtype in unpinned:
        copy = np.ndarray(array.shape, array.dtype, slot, start)
        pairs.append((copy, array))
        sources[place] = copy if dtype is None else from_array_and_dtype(copy, dtype)
        start += aligned(array.nbytes)
    copy_arrays(pairs, helpers)
