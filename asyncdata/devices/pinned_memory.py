"""PinnedMemory: host memory that a device reads without an intermediate copy."""

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
"""An array of bytes on the host."""

MEMORY: Final[Any] = ctypes.Array


class PinnedMemory:
    """Pinned memory: memory allocated as pinned, and slots that worker processes fill, each registered once.

    `allocate` returns pinned memory; `register` pins memory at an address, and returns whether that succeeded;
    `release` unpins registered memory.
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
        """Whether memory is pinned, by its address."""

    def allocate(self, size: int) -> HostMemory:
        memory = self.make(size)
        address = memory.ctypes.data
        self.known[address] = True
        weakref.finalize(memory, self.known.pop, address, None).atexit = False
        return memory

    def allocate_or_not(self, size: int) -> HostMemory:
        """Return pinned memory, or other memory if no more can be pinned."""
        try:
            return self.allocate(size)
        except (MemoryError, RuntimeError):
            return np.empty(size, np.uint8)

    def direct(self, array: Array) -> Array | None:
        """Return an array if it is in pinned memory and contiguous, else `None`."""
        owner = owner_of(array)
        if owner is None or not array.flags.c_contiguous or not array.dtype.isnative:
            return None
        if not self.is_pinned(owner):
            return None
        return np.ndarray(array.shape, array.dtype, owner, array.ctypes.data - ctypes.addressof(owner))

    def is_pinned(self, owner: Any) -> bool:
        """Return whether memory is pinned; a slot of another process is registered at its first use."""
        address = ctypes.addressof(owner)
        pinned = self.known.get(address)
        slot = getattr(owner, "memory", None)
        if pinned is None and slot is not None:
            pinned = self.known[address] = self.register(address, ctypes.sizeof(owner))
            slot.before_end(partial(self.unregister, address))
        return bool(pinned)

    def unregister(self, address: int) -> None:
        """Unregister a slot without references, before its memory is freed."""
        if self.known.pop(address, False):
            self.release(address)


def owner_of(array: Any) -> Any:
    """Return the pool's buffer, or the slot, that holds an array; `None` if there is neither."""
    while array is not None and not isinstance(array, MEMORY):
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return array
