"""PackedLayout: the places of an element's small arrays in one block of memory, remembered from batch to batch.

Reasons and measurements: docs/design.md, "Devices".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncdata.devices.pinned_memory import HostMemory
from asyncdata.elements.tensors import array_and_dtype, is_tensor, tensor_bytes

__all__ = ("PackedArray", "PackedLayout", "aligned", "host_array", "kinds_of")

ALIGN: Final = 256

SMALL: Final = 1 << 16
"""Arrays of up to this many bytes are copied to the device as one, whose memory is in use as long as any of them is."""

PIECE: Final = 1 << 18
"""Arrays of so many bytes in total are joined at a time: this stays in the processor's cache, and is short enough to
keep the interpreter's lock."""

Kinds: TypeAlias = list[tuple[type[Any], Any, Sequence[int]]]
"""The class, the dtype and the shape of each array."""


class PackedArray(NamedTuple):
    """The place of an array in packed memory, in which it is in row-major order; the dtype is NumPy's or PyTorch's."""

    start: int
    dtype: Any
    shape: Sequence[int]
    strides: Sequence[int]
    """In items."""


def kinds_of(arrays: Iterable[Any]) -> Kinds:
    """Return what the layout of arrays or tensors depends on."""
    return [(type(array), array.dtype, array.shape) for array in arrays]


class PackedLayout:
    """The places of the small ones of some arrays; `large` has the indices of the others.

    Small arrays are joined by `bytes.join`, which copies many in one call and keeps the interpreter's lock: if it was
    released for each array, a thread that computes in Python could take it each time, and hold it for 5 ms.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.kinds = kinds_of(arrays)
        self.small: list[int] = []
        self.large: list[int] = []
        self.parts: list[PackedArray] = []
        self.pads: list[bytes] = []
        self.cuts: list[int] = [0]
        """The numbers of the small arrays at which pieces begin and end."""
        self.raw = True
        """Whether all small ones are NumPy's in native byte order, whose memory is copied as it is."""
        self.size = 0
        begin = 0
        for place, array in enumerate(arrays):
            size = tensor_bytes(array) if is_tensor(array) else array.nbytes
            if size > SMALL:
                self.large.append(place)
                continue
            self.add(place, array, size)
            if self.size - begin >= PIECE:
                self.cuts.append(len(self.small))
                begin = self.size
        if self.cuts[-1] < len(self.small):
            self.cuts.append(len(self.small))

    def add(self, place: int, array: Any, size: int) -> None:
        """Add a small array of so many bytes at the end."""
        dtype = array.dtype
        if is_tensor(array):
            self.raw = False
        elif not dtype.isnative:
            self.raw, dtype = False, dtype.newbyteorder("=")
        self.small.append(place)
        self.parts.append(PackedArray(self.size, dtype, array.shape, row_major(array.shape)))
        self.pads.append(bytes(-size % ALIGN))
        self.size += aligned(size)

    def pack(self, arrays: Sequence[Any], target: HostMemory) -> None:
        """Copy the small ones of arrays of these kinds into memory of `size` bytes."""
        sources = [arrays[place] for place in self.small] if self.large else arrays
        if not self.raw:
            sources = [memory_of(array) for array in sources]
        memory, at = target.data, 0
        for begin, end in zip(self.cuts, self.cuts[1:], strict=False):
            joined = joined_bytes(sources[begin:end], self.pads[begin:end])
            memory[at : at + len(joined)] = joined
            at += len(joined)


def row_major(shape: Sequence[int]) -> list[int]:
    """Return the strides, in items, of an array in row-major order."""
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


def joined_bytes(arrays: Sequence[npt.NDArray[Any]], pads: Sequence[bytes]) -> bytes:
    """Return the data of arrays in row-major order, each with its padding."""
    try:
        return b"".join(interleaved(arrays, pads))
    except TypeError:  # one that is not in one piece
        return b"".join(interleaved([np.ascontiguousarray(array) for array in arrays], pads))


def interleaved(arrays: Sequence[Any], pads: Sequence[bytes]) -> Iterator[Any]:
    """Yield each array and its padding."""
    return chain.from_iterable(zip(arrays, pads, strict=True))


def memory_of(array: Any) -> npt.NDArray[Any]:
    """Return the data of an array or a tensor as an array in native byte order."""
    if is_tensor(array):
        try:
            return array.numpy()  # much faster, and possible for most
        except (RuntimeError, TypeError):
            pass
    return host_array(array)[0]


def host_array(array: Any) -> tuple[npt.NDArray[Any], str | None]:
    """Return an array or a tensor as an array in native byte order, and the name for `from_array_and_dtype` of a
    tensor."""
    if is_tensor(array):
        return array_and_dtype(array)
    found: npt.NDArray[Any] = np.asarray(array)
    return (found if found.dtype.isnative else found.astype(found.dtype.newbyteorder("="))), None


def aligned(size: int) -> int:
    """Return a size rounded up to whole units of alignment."""
    return -(-size // ALIGN) * ALIGN
