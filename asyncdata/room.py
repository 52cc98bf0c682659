"""Room: arrays that a function fills and returns, in the memory in which its results travel."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from operator import index
from typing import Any, Final, SupportsIndex

import numpy as np
import numpy.typing as npt

from asyncdata import memory
from asyncdata.columns import Empty

__all__ = ("empty", "giving")


class Giver(threading.local):
    """What gives arrays to the function that runs in this thread, if somebody is waiting for its results."""

    empty: Empty | None = None


GIVER: Final = Giver()


def empty(shape: SupportsIndex | Iterable[SupportsIndex], dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    """Return an array for a function of `map` to fill and return, as `numpy.empty` does.

    In a worker process (`executor="process"`) one of 64 KB or more lies in the shared memory in which results travel,
    so that it arrives without having been copied. Elsewhere one of 2 MB or more is of memory that earlier ones have
    left, whose pages are there already. Use it for what is returned, not for what is only needed on the way; after that
    the array is the consumer's. (In a worker process one that the function keeps is copied, and stays its own.)

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
    sizes = (shape,) if isinstance(shape, SupportsIndex) else shape
    return (GIVER.empty or memory.empty)(tuple(map(index, sizes)), np.dtype(dtype))


@contextmanager
def giving(source: Empty) -> Generator[None]:
    """Let the functions that this thread calls have their arrays from `source`."""
    GIVER.empty = source
    try:
        yield
    finally:
        GIVER.empty = None
