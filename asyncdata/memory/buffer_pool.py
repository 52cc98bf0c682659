"""BufferPool: reuses the memory of batches once the consumer has no view of it any more.

Reasons and measurements: docs/design.md, "Memory".
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncdata.memory.memcpy import gather
from asyncdata.system import forks

__all__ = ("LARGE", "POOL", "Array", "BufferPool", "Empty", "empty", "joined", "keep_memory_warm")

Array: TypeAlias = npt.NDArray[Any]

Empty: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], Array]
"""Allocates an array of a shape and a dtype, as `numpy.empty` does."""

LARGE: Final = 1 << 21
"""Arrays of fewer bytes are left to the allocator."""

MAX_POOL_BYTES: Final = 64 << 20

MAX_BUFFER_BYTES: Final = (32 << 20) - (1 << 16)

M_TOP_PAD: Final = -2  # malloc.h


@cache
def keep_memory_warm() -> None:
    """Let glibc's allocator retain up to 64 MB of freed memory instead of returning it to the kernel; only once.

    A pipeline frees elements and allocates others of the same size. By default each large block is mapped anew, and its
    pages are faulted in one by one: batches of 100 KB records take up to 1.3 times as long. glibc raises both of its
    thresholds when a mapped block is freed (mallopt(3), M_MMAP_THRESHOLD); this frees a block just below the largest
    size that counts. A thread's memory comes in heaps of 64 MB, and an empty heap is unmapped at once unless the
    padding covers it. Other allocators are not affected. No pages are touched.
    """
    np.empty(MAX_BUFFER_BYTES, np.uint8)  # a bytearray would be filled with zeros
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:  # musl does not have it
        mallopt(M_TOP_PAD, MAX_POOL_BYTES)  # from here on the thresholds stay where they are


class BufferPool:
    """Idle memory, at most `most` bytes; the most recently used is taken first.

    A general allocator cuts small objects from a large free block, and the next batch then needs fresh pages after all.

    >>> pool = BufferPool(most=1 << 20)
    >>> rows = pool.empty((1000, 100), np.dtype(np.uint8))
    >>> rows.shape, pool.bytes
    ((1000, 100), 0)
    >>> del rows
    >>> pool.bytes
    106496
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.idle: list[Array] = []
        self.bytes = 0
        self.allocate: Callable[[int], Array] = lambda size: np.empty(size, np.uint8)
        self.lock = forks.lock()  # never waited for, as a finalizer may run while its own thread holds it

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an uninitialised array in row-major order; its dtype must not hold objects."""
        need = prod(shape) * dtype.itemsize
        capacity = rounded(need)
        if capacity > self.most:
            return np.empty(shape, dtype)
        memory = self.take(capacity)
        if memory is None:
            memory = self.allocate(capacity)
        owner = block_of(capacity).from_buffer(memory)  # NumPy may drop a base that is an array or a memoryview
        owner.give_back = partial(self.give, memory)
        return np.ndarray(shape, dtype, owner)

    def allocate_by(self, allocate: Callable[[int], Array]) -> None:
        """Set how memory is allocated from now on, and drop idle memory."""
        self.allocate = allocate
        with self.lock:
            self.idle.clear()
            self.bytes = 0

    def take(self, capacity: int) -> Array | None:
        """Return idle memory of this size, if there is some."""
        if not self.lock.acquire(blocking=False):
            return None
        try:
            for place in reversed(range(len(self.idle))):
                if self.idle[place].nbytes == capacity:
                    self.bytes -= capacity
                    return self.idle.pop(place)
        finally:
            self.lock.release()
        return None

    def give(self, memory: Array) -> None:
        """Add memory that is no longer referenced, and drop the memory that has been idle for longest."""
        if not self.lock.acquire(blocking=False):
            return
        try:
            self.idle.append(memory)
            self.bytes += memory.nbytes
            while self.bytes > self.most:
                self.bytes -= self.idle.pop(0).nbytes
        finally:
            self.lock.release()


class PooledBuffer:
    """The owner of pooled memory, which an array and all its views keep alive; it returns the memory when it ends."""

    give_back: Callable[[], object] = staticmethod(int)

    def __del__(self) -> None:
        self.give_back()


@cache
def block_of(size: int) -> Any:
    """Return the ctypes class of a pooled buffer of `size` bytes."""
    return type("PooledBuffer", (PooledBuffer, ctypes.c_ubyte * size), {})


def rounded(need: int) -> int:
    """Return the capacity for `need` bytes: up to an eighth more, so that batches of similar sizes share buffers."""
    step = max(4096, 1 << max(0, need.bit_length() - 4))
    return -(-need // step) * step


POOL: Final = BufferPool(MAX_POOL_BYTES)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array as `numpy.empty` does; a large one in pooled memory if there is some."""
    if dtype.hasobject or prod(shape) * dtype.itemsize < LARGE:
        return np.empty(shape, dtype)
    return POOL.empty(shape, dtype)


def joined(arrays: Sequence[Array]) -> Array:
    """Join arrays along their first axes, in the machine's byte order, as `numpy.concatenate` does."""
    first, dtypes = arrays[0], [array.dtype for array in arrays]
    plain = first.flags.c_contiguous and first.dtype.isnative and not first.dtype.hasobject
    if dtypes.count(dtypes[0]) < len(dtypes) or not plain:
        return np.concatenate(arrays)
    rows = sum(map(len, arrays))
    out = empty((rows, *first.shape[1:]), first.dtype)
    gather(arrays, out)
    return out
