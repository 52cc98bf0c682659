"""Pinned memory: which memory of the host a device reads without a copy in between."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ("Array", "HostMemory", "PinnedMemory")

Array: TypeAlias = npt.NDArray[Any]

HostMemory: TypeAlias = npt.NDArray[np.uint8]
"""Bytes on the host."""

MEMORY: Final[Any] = ctypes.Array


class PinnedMemory:
    """Memory that is pinned: what was allocated so, and slots that worker processes fill, registered once each.

    `allocate` returns pinned memory; `register` pins memory at an address, and returns whether that was allowed;
    `release` lets go of what was registered.
    """

    def __init__(
        self,
        allocate: Callable[[int], HostMemory],
        register: Callable[[int, int], bool],
        release: Callable[[int], object],
    ) -> None:
        self.make = allocate
        self.register = register
        self.release = release
        self.known: dict[int, bool] = {}
        """Whether memory is pinned, by the address where it begins."""

    def allocate(self, size: int) -> HostMemory:
        """Return pinned memory."""
        memory = self.make(size)
        address = memory.ctypes.data
        self.known[address] = True
        weakref.finalize(memory, self.known.pop, address, None).atexit = False
        return memory

    def allocate_or_not(self, size: int) -> HostMemory:
        """Return pinned memory, or other memory where no more can be pinned."""
        try:
            return self.allocate(size)
        except (MemoryError, RuntimeError):
            return np.empty(size, np.uint8)

    def direct(self, array: Array) -> Array | None:
        """Return an array as it lies in pinned memory; `None` where it does not, or not in one piece."""
        owner = owner_of(array)
        if owner is None or not array.flags.c_contiguous or not array.dtype.isnative:
            return None
        if not self.is_pinned(owner):
            return None
        return np.ndarray(array.shape, array.dtype, owner, array.ctypes.data - ctypes.addressof(owner))

    def is_pinned(self, owner: Any) -> bool:
        """Return whether memory is pinned; a slot of another process is registered when it is first seen."""
        address = ctypes.addressof(owner)
        pinned = self.known.get(address)
        slot = getattr(owner, "memory", None)
        if pinned is None and slot is not None:
            pinned = self.known[address] = self.register(address, ctypes.sizeof(owner))
            slot.before_end(partial(self.let_go, address))
        return bool(pinned)

    def let_go(self, address: int) -> None:
        """Let go of a slot that nobody looks into any more, before its memory goes."""
        if self.known.pop(address, False):
            self.release(address)


def owner_of(array: Any) -> Any:
    """Return the memory that an array was lent by the pool, or of the slot that it looks into; `None` if neither."""
    while array is not None and not isinstance(array, MEMORY):
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return array
