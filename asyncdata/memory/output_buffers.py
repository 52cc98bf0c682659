"""Output buffers for functions of the user: `empty()` allocates an array in the memory for their results.

That a reader may keep a view of a batch is made by `buffer_pool` and, between processes, `executors/process/shm_arena`.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from operator import index
from typing import Any, Final, SupportsIndex, cast

import numpy as np
import numpy.typing as npt

from asyncdata.memory import buffer_pool
from asyncdata.memory.buffer_pool import Array, Empty

__all__ = ("MIN_BYTES", "OutputBuffer", "empty", "giving", "without_output_buffers")

MIN_BYTES: Final = 1 << 16
"""Smaller arrays are allocated as usual."""


def empty(shape: SupportsIndex | Iterable[SupportsIndex], dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    """Return an array for a function of `map` to fill and return, as `numpy.empty` does.

    An array of 64 KB or more is allocated where it is needed, so that it need not be copied: in its row of the batch if
    workers make complete batches, else, in a worker process (`executor="process"`), in the shared memory for results.
    Otherwise an array of 2 MB or more reuses the memory of earlier ones, whose pages are already mapped.

    Use it for arrays that the function returns, not for temporary ones, and keep no reference: the array then belongs
    to the consumer. (In a worker process, an array that the function keeps is copied, and stays its own.)

    Args:
        shape: The size of each axis, or of the only axis.
        dtype: The dtype of the items.

    Returns:
        A writable, uninitialised array in row-major order.

    >>> import numpy as np
    >>> import asyncdata as ad
    >>> def picture(brightness):
    ...     pixels = ad.empty((224, 224, 3), np.uint8)
    ...     pixels[:] = brightness
    ...     return pixels
    >>> ad.Dataset.range(3).map(picture).batch(3).peek().shape
    (3, 224, 224, 3)
    """
    along = (shape,) if hasattr(shape, "__index__") else shape  # isinstance with a protocol is slow
    sizes = tuple(map(index, cast("Iterable[SupportsIndex]", along)))
    kind, filling = np.dtype(dtype), ALLOCATOR.filling
    row = None if filling is None else filling.take(sizes, kind)
    return (ALLOCATOR.source or buffer_pool.empty)(sizes, kind) if row is None else row


class OutputBuffer:
    """Rows of a batch that are filled with elements, one after another, and the row for the next element."""

    __slots__ = ("arrays", "row", "taken")

    def __init__(self, arrays: Sequence[Array]) -> None:
        kinds = [(array.shape[1:], array.dtype) for array in arrays]
        self.arrays = {
            kind: array
            for array, kind in zip(arrays, kinds, strict=True)
            if array.nbytes >= MIN_BYTES * len(array) and not array.dtype.hasobject and kinds.count(kind) == 1
        }  # of two equal ones it is unclear which one a function means
        self.row = 0
        self.taken: list[Array] = []

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
        """Return the place for an array of the current element, at its first request."""
        array = self.arrays.get((shape, dtype))
        if array is None or (self.taken and (shape, dtype) in [(place.shape, place.dtype) for place in self.taken]):
            return None
        place = array[self.row]
        self.taken.append(place)
        return place

    def places(self) -> list[Array]:
        """Return the places that the last element has taken, and forget them."""
        taken, self.taken = self.taken, []
        return taken

    @contextmanager
    def giving(self) -> Generator[None]:
        """Let functions that this thread calls allocate their arrays here."""
        before, ALLOCATOR.filling = ALLOCATOR.filling, self if self.arrays else None
        try:
            yield
        finally:
            ALLOCATOR.filling = before


class OutputAllocator(threading.local):
    """The allocator for the function that runs in this thread, if its results are written to output buffers."""

    source: Empty | None = None
    filling: OutputBuffer | None = None


ALLOCATOR: Final = OutputAllocator()


@contextmanager
def giving(source: Empty) -> Generator[None]:
    """Let functions that this thread calls allocate their arrays from `source`."""
    before, ALLOCATOR.source = ALLOCATOR.source, source
    try:
        yield
    finally:
        ALLOCATOR.source = before


@contextmanager
def without_output_buffers() -> Generator[None]:
    """Let functions of another pipeline, which is read within a function, allocate no arrays of this one."""
    before = ALLOCATOR.source, ALLOCATOR.filling
    ALLOCATOR.source = ALLOCATOR.filling = None
    try:
        yield
    finally:
        ALLOCATOR.source, ALLOCATOR.filling = before
