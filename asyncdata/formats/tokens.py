"""Files of tokens: how windows lie in them, and the index that Megatron writes beside them, without I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ("HEADER_BYTES", "TokenIndex", "TokenWindows", "index_of")

ReadAt: TypeAlias = Callable[[int, int], bytes]
"""Returns so many bytes from an offset on, fewer at the end of the file."""

MAGIC: Final = b"MMIDIDX\0\0"

HEADER: Final = Struct("<9sQBQQ")

HEADER_BYTES: Final = HEADER.size

DTYPES: Final = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float64",
    7: "float32",
    8: "uint16",
}
"""The dtypes of tokens by the number that stands for them."""


@dataclass(frozen=True)
class TokenWindows:
    """Windows of `length` tokens, of which each shares its first `overlap` with the one before.

    >>> TokenWindows(length=4, overlap=1).count(9), TokenWindows(4, 1, drop_remainder=False).count(9)
    (2, 3)
    """

    length: int
    overlap: int = 0
    drop_remainder: bool = True

    @property
    def step(self) -> int:
        """How many tokens are between the beginnings of two windows."""
        return self.length - self.overlap

    def count(self, tokens: int) -> int:
        """Return how many windows there are in so many tokens."""
        full = (tokens - self.length) // self.step + 1 if tokens >= self.length else 0
        new = tokens - full * self.step - (self.overlap if full else 0)
        return full + (new > 0 and not self.drop_remainder)


@dataclass(frozen=True)
class TokenIndex:
    """Where the sequences and documents of a file begin, by the index beside it."""

    dtype: np.dtype[Any]
    sequences: int
    bounds: int
    """How many bounds of documents there are: one more than documents."""

    @property
    def documents(self) -> int:
        return self.bounds - 1

    @property
    def nbytes(self) -> int:
        """The size of the index."""
        return HEADER_BYTES + 12 * self.sequences + 8 * self.bounds

    def lengths(self, read: ReadAt, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Return the numbers of tokens of some sequences."""
        return np.frombuffer(read(HEADER_BYTES + 4 * start, 4 * (stop - start)), "<i4").astype(np.int64)

    def pointers(self, read: ReadAt, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Return the bytes at which some sequences begin."""
        return np.frombuffer(read(HEADER_BYTES + 4 * self.sequences + 8 * start, 8 * (stop - start)), "<i8")

    def bounds_of(self, read: ReadAt, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Return the numbers of the first sequences of some documents, and of the one after them."""
        at = HEADER_BYTES + 12 * self.sequences + 8 * start
        return np.frombuffer(read(at, 8 * (stop - start + 1)), "<i8")

    def ends(self, read: ReadAt, start: int, stop: int, *, documents: bool) -> npt.NDArray[np.int64]:
        """Return the bytes at which some sequences or documents begin, and the last one ends; `ValueError` if the
        numbers in the index contradict each other."""
        firsts = self.bounds_of(read, start, stop) if documents else np.arange(start, stop + 1)
        first, last = int(firsts[0]), int(firsts[-1])
        if len(firsts) != stop - start + 1 or (np.diff(firsts) < 0).any() or not 0 <= first <= last <= self.sequences:
            raise ValueError(f"the bounds of documents {start} to {stop} are not in order")
        sizes = self.lengths(read, first, last) * self.dtype.itemsize
        begins = self.pointers(read, first, min(last + 1, self.sequences))
        begin = int(begins[0]) if len(begins) else 0
        ends = begin + np.concatenate([[0], np.cumsum(sizes)])
        if (sizes < 0).any() or begin < 0 or (ends[: len(begins)] != begins).any():
            raise ValueError(f"the lengths and places of sequences {first} to {last} contradict each other")
        return ends[firsts - first]

    def check(self, read: ReadAt, size: int, tokens: int) -> None:
        """Raise `ValueError` unless the index of `size` bytes is complete, and ends where `tokens` bytes do."""
        if size == self.nbytes + self.sequences:
            raise ValueError("it has a mode for each sequence, which is not supported")
        if size != self.nbytes:
            raise ValueError(f"{self.nbytes} bytes are expected, it has {size}")
        if (
            not self.bounds
            or self.bounds_of(read, 0, 0)[0]
            or self.bounds_of(read, self.documents, self.documents)[0] != (self.sequences)
        ):
            raise ValueError("the documents do not begin and end with the sequences")
        last = max(0, self.sequences - 1)
        begin, end = (
            self.ends(read, 0, 0, documents=False)[0],
            self.ends(read, last, self.sequences, documents=False)[-1],
        )
        if begin or end != tokens:
            raise ValueError(f"its sequences are bytes {begin} to {end} of the tokens, which have {tokens}")


def index_of(head: bytes) -> TokenIndex:
    """Return the index that begins with these bytes; `ValueError` for others."""
    if len(head) < HEADER_BYTES:
        raise ValueError(f"it ends at byte {len(head)}, where a header of {HEADER_BYTES} bytes was expected")
    magic, version, code, sequences, bounds = HEADER.unpack_from(head)
    if magic != MAGIC or version != 1 or code not in DTYPES:
        raise ValueError(
            f"an index of version 1 begins with {MAGIC!r}, 1 and a dtype, got {magic!r}, {version}, {code}"
        )
    return TokenIndex(np.dtype(DTYPES[code]).newbyteorder("<"), sequences, bounds)
