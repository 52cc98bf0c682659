"""Buffer pool: large objects are made in memory that earlier ones left, not in fresh pages."""

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
from asyncdata.runtime import forks

__all__ = ("LARGE", "POOL", "Array", "BufferPool", "Empty", "empty", "joined", "keep_memory_warm")

Array: TypeAlias = npt.NDArray[Any]

Empty: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], Array]
"""Gives an array of a shape and a dtype, as `numpy.empty` does."""

LARGE: Final = 1 << 21
"""Arrays of fewer bytes are left to the allocator."""

MAX_POOL_BYTES: Final = 64 << 20

MAX_BUFFER_BYTES: Final = (32 << 20) - (1 << 16)

M_TOP_PAD: Final = -2  # malloc.h


@cache
def keep_memory_warm() -> None:
    """Have glibc's allocator keep up to 64 MB of freed memory, once, instead of giving it back to the kernel.

    A pipeline frees elements and makes others of the same size. By default each large block is mapped anew, and its
    pages are faulted in one by one: batches of 100 KB records take up to 1.3 times as long. glibc raises both of its
    thresholds when a mapped block is freed (mallopt(3), M_MMAP_THRESHOLD); this frees one of just below the largest
    size that counts. A thread's memory comes in heaps of 64 MB, and one that is empty is unmapped at once, unless so
    much as the padding is wanted. Other allocators are not changed by it. Nothing is touched.
    """
    bytearray(MAX_BUFFER_BYTES)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:  # musl has none
        mallopt(M_TOP_PAD, MAX_POOL_BYTES)  # from here on the thresholds stay where they are


class BufferPool:
    """Memory that nobody uses, at most `most` bytes of it; what was used last is taken first.

    An allocator cuts small things from a large block that is free, and then the next batch is of fresh pages after all.

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
        self.allocate: Callable[[int], Array] = plain_memory
        self.lock = forks.lock()  # never waited for: a finalizer may run while its own thread holds it

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array that holds nothing in particular, in rows, of numbers or others that are no objects."""
        need = prod(shape) * dtype.itemsize
        capacity = rounded(need)
        if capacity > self.most:
            return np.empty(shape, dtype)
        memory = self.take(capacity)
        if memory is None:
            memory = self.allocate(capacity)
        owner = block_of(capacity).from_buffer(memory)  # NumPy may drop an array or a memoryview that it was given
        owner.give_back = partial(self.give, memory)
        return np.ndarray(shape, dtype, owner)

    def allocate_by(self, allocate: Callable[[int], Array]) -> None:
        """Have memory allocated in another way from now on: what is idle was not."""
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
        """Keep memory that nothing looks into any more, and let go of what has been idle for longest."""
        if not self.lock.acquire(blocking=False):
            return
        try:
            self.idle.append(memory)
            self.bytes += memory.nbytes
            while self.bytes > self.most:
                self.bytes -= self.idle.pop(0).nbytes
        finally:
            self.lock.release()


def plain_memory(size: int) -> Array:
    """Return memory as the system gives it."""
    return np.empty(size, np.uint8)


class PooledBuffer:
    """What an array in lent memory holds, and with it everything that looks into it."""

    give_back: Callable[[], object] = staticmethod(int)

    def __del__(self) -> None:
        self.give_back()


@cache
def block_of(size: int) -> Any:
    """Return the type of so many bytes that are lent."""
    return type("PooledBuffer", (PooledBuffer, ctypes.c_ubyte * size), {})


def rounded(need: int) -> int:
    """Return how much is taken for so many bytes: up to an eighth more, so that batches of about one size share."""
    step = max(4096, 1 << max(0, need.bit_length() - 4))
    return -(-need // step) * step


POOL: Final = BufferPool(MAX_POOL_BYTES)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array as `numpy.empty` does; a large one in memory that was used before, if there is such."""
    if dtype.hasobject or prod(shape) * dtype.itemsize < LARGE:
        return np.empty(shape, dtype)
    return POOL.empty(shape, dtype)


def joined(arrays: Sequence[Array]) -> Array:
    """Return arrays that have one shape, but for their first axes, as one, as `numpy.concatenate` does."""
    first, dtypes = arrays[0], [array.dtype for array in arrays]
    if dtypes.count(dtypes[0]) < len(dtypes) or not first.flags.c_contiguous or first.dtype.hasobject:
        return np.concatenate(arrays)
    rows = sum(map(len, arrays))
    out = empty((rows, *first.shape[1:]), first.dtype)
    gather(arrays, out)
    return out
