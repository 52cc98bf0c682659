"""Parcel: a value as it travels through an object store, with the data of large arrays next to its pickle."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncdata.executors.process.shm_arena import Buffers, dumps
from asyncdata.memory.buffer_pool import empty
from asyncdata.memory.memcpy import copy

__all__ = ("Parcel", "copy_of")

SMALL: Final = 1 << 16
LEAST: Final = 1 << 12
"""Arrays of fewer bytes on average are a part of the pickle: each one next to it costs microseconds."""


class Parcel(NamedTuple):
    """A pickle, and the data of its arrays apart from it."""

    head: bytes
    buffers: tuple[npt.NDArray[np.uint8], ...] = ()

    @property
    def size(self) -> int:
        return len(self.head) + sum([buffer.nbytes for buffer in self.buffers])

    @staticmethod
    def of(value: Any, dump: Callable[[Any, Any], bytes] = dumps) -> Parcel:
        """Return a value in the form that is sent; nothing large is copied."""
        buffers = Buffers()
        head = dump(value, buffers)
        raw = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
        size = sum([part.nbytes for part in raw])
        if size < max(SMALL, LEAST * len(raw)):
            return Parcel(dump(value, None) if raw else head)
        return Parcel(head, tuple(raw))

    def open(self, copied: bool) -> Any:
        """Return the value. Its large arrays are views of the buffers, unless they are `copied`: then they are
        writable.

        Only pickles from the other side of this pipeline are opened here.
        """
        return pickle.loads(self.head, buffers=map(copy_of, self.buffers) if copied else self.buffers)


def copy_of(buffer: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return memory of this process's own with the same bytes."""
    own = empty(buffer.shape, buffer.dtype)
    copy(own.data, buffer.data)
    return own
