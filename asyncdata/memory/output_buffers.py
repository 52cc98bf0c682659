"""Output buffers: arrays that a function fills and returns, in the memory in which its results are to lie."""

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
"""Bytes of an array from which on it matters where it lies."""


def empty(shape: SupportsIndex | Iterable[SupportsIndex], dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    """Return an array for a function of `map` to fill and return, as `numpy.empty` does.

    One of 64 KB or more lies where it is needed, so that it need not be copied: where workers make whole batches in the
    row of its batch, in a worker process (`executor="process"`) else in the shared memory in which results travel.
    Elsewhere one of 2 MB or more is of memory that earlier ones have left, whose pages are there already.

    Use it for what is returned, not for what is only needed on the way, and let go of it: it is the consumer's then.
    (In a worker process one that the function keeps is copied, and stays its own.)

    Args:
        shape: How many items there are along each axis, or along the only one.
        dtype: Of what dtype they are.

    Returns:
        A writable array in row-major order, whose items are whatever was there before.

    >>> import numpy as np
    >>> import asyncdata as ad
    >>> def picture(brightness):
    ...     pixels = ad.empty((224, 224, 3), np.uint8)
    ...     pixels[:] = brightness
    ...     return pixels
    >>> ad.Dataset.range(3).map(picture).batch(3).peek().shape
    (3, 224, 224, 3)
    """
    along = (shape,) if hasattr(shape, "__index__") else shape  # isinstance of a protocol takes long
    sizes = tuple(map(index, cast("Iterable[SupportsIndex]", along)))
    kind, filling = np.dtype(dtype), ALLOCATOR.filling
    row = None if filling is None else filling.take(sizes, kind)
    return (ALLOCATOR.source or buffer_pool.empty)(sizes, kind) if row is None else row


class OutputBuffer:
    """Rows of a batch that are filled with elements, one after another: what the next one may be made in."""

    __slots__ = ("arrays", "row", "taken")

    def __init__(self, arrays: Sequence[Array]) -> None:
        kinds = [(array.shape[1:], array.dtype) for array in arrays]
        self.arrays = {
            kind: array
            for array, kind in zip(arrays, kinds, strict=True)
            if array.nbytes >= MIN_BYTES * len(array) and not array.dtype.hasobject and kinds.count(kind) == 1
        }  # of two that are alike nobody could tell which a function means
        self.row = 0
        self.taken: list[Array] = []

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
        """Return the place for an array of the element that is made now, the first time that it is asked for."""
        array = self.arrays.get((shape, dtype))
        if array is None or (self.taken and (shape, dtype) in [(place.shape, place.dtype) for place in self.taken]):
            return None
        place = array[self.row]
        self.taken.append(place)
        return place

    def places(self) -> list[Array]:
        """Return what the last element has taken, for the last time."""
        taken, self.taken = self.taken, []
        return taken

    @contextmanager
    def giving(self) -> Generator[None]:
        """Let the functions that this thread calls make their arrays here."""
        before, ALLOCATOR.filling = ALLOCATOR.filling, self if self.arrays else None
        try:
            yield
        finally:
            ALLOCATOR.filling = before


class OutputAllocator(threading.local):
    """What gives arrays to the function that runs in this thread, if somebody is waiting for its results."""

    source: Empty | None = None
    filling: OutputBuffer | None = None


ALLOCATOR: Final = OutputAllocator()


@contextmanager
def giving(source: Empty) -> Generator[None]:
    """Let the functions that this thread calls have their arrays from `source`."""
    before, ALLOCATOR.source = ALLOCATOR.source, source
    try:
        yield
    finally:
        ALLOCATOR.source = before


@contextmanager
def without_output_buffers() -> Generator[None]:
    """Let functions of another pipeline, which is read within a function, make no arrays for this one."""
    before = ALLOCATOR.source, ALLOCATOR.filling
    ALLOCATOR.source = ALLOCATOR.filling = None
    try:
        yield
    finally:
        ALLOCATOR.source, ALLOCATOR.filling = before
