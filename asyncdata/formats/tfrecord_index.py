"""RecordIndex: where each record of an uncompressed TFRecord file begins, and the small file that stores it.

That file is a header, the lengths of the records as little-endian integers of the smallest width that fits, and the
CRC32C of everything before. The header, also little-endian: `ad-index`, the version and the bytes per length (uint32
each), the data file's size (uint64) and modification time in nanoseconds (int64), the number of records (uint64).
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from asyncdata.errors import DataLossError
from asyncdata.formats.offset_index import packed_lengths, unpacked_lengths
from asyncdata.formats.tfrecord import (
    FRAMING,
    HEADER,
    LARGE,
    MANY,
    Buffer,
    RecordParser,
    crcs_of_lengths,
    intact,
    length_intact,
    masked,
    of_one_length,
    records_at,
    run_of_one_length,
    scan,
    unpack_length,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ("HEADER", "RecordIndex", "Stamp", "changed", "damaged_span", "lost_record", "records_in")

MAGIC: Final = b"ad-index"
FILE_HEADER: Final = struct.Struct("<8sIIQqQ")

WINDOW: Final = 1 << 20
"""Bytes that are read at once if records are small; one page if they are large."""
PAGE: Final = 4096


class Stamp(NamedTuple):
    """A file's size and modification time in nanoseconds, which show whether it has changed."""

    size: int
    mtime_ns: int


class RecordIndex:
    """Where the records of a file begin. Bytes after the last intact record, if there are any, count as one more.

    >>> from asyncdata.formats.tfrecord import frame
    >>> data = frame(b"hello") + frame(b"you")
    >>> index = RecordIndex.of(lambda offset, size: data[offset : offset + size], Stamp(len(data), 0))
    >>> index.count, index.span(1)
    (2, (21, 19))
    >>> len(index.to_bytes())
    46
    """

    def __init__(self, stamp: Stamp, lengths: NDArray[np.unsignedinteger], error: OSError | None = None) -> None:
        self.stamp = stamp
        self.error = error  # if the file could not be read; the error is then its only element
        self.lengths = lengths
        self.intact_count = len(lengths)
        begins = np.arange(0, FRAMING * (self.intact_count + 1), FRAMING, dtype=np.int64)
        begins[1:] += np.cumsum(lengths, dtype=np.int64)
        self.begins = array("q", begins.tobytes())  # returns Python integers ten times as fast as NumPy
        self.count = self.intact_count + (self.begins[-1] != stamp.size)

    @classmethod
    def unreadable(cls, error: OSError) -> Self:
        """Return the index of a file that cannot be read."""
        return cls(Stamp(-1, 0), np.zeros(0, np.uint8), error)

    def span(self, number: int) -> tuple[int, int]:
        """Return where a record begins, and its size in bytes with its framing: 0 if it is damaged."""
        begin = self.begins[number]
        return begin, self.begins[number + 1] - begin if number < self.intact_count else 0

    def limited(self, most: int) -> RecordIndex:
        """Return an index that ends before the first record of more than `most` bytes, which loses the file's rest."""
        long = np.flatnonzero(self.lengths > most)
        return RecordIndex(self.stamp, self.lengths[: long[0]], self.error) if len(long) else self

    @classmethod
    def of(cls, read: Callable[[int, int], bytes], stamp: Stamp) -> Self:
        """Return the index of a file, read by `read(offset, size)`, up to the first record that is lost.

        If records are large it reads only the lengths, else everything, which is faster than seeking.
        """
        found: list[NDArray[np.uint64]] = []
        at, window = 0, WINDOW
        while at < stamp.size:
            lengths = good_lengths(read(at, min(window, stamp.size - at)), stamp.size - at)
            if not len(lengths):
                break
            span = int(lengths.sum()) + FRAMING * len(lengths)
            window = WINDOW if span < LARGE * len(lengths) else PAGE
            at += span
            found.append(lengths)
        lengths = np.concatenate(found) if found else np.zeros(0, np.uint64)
        return cls(stamp, lengths.astype(np.min_scalar_type(lengths.max(initial=0))))

    def to_bytes(self) -> bytes:
        """Return the serialized index."""
        return packed_lengths(FILE_HEADER, MAGIC, self.stamp, self.lengths)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Return the index that `to_bytes` serialized; `ValueError` if it is damaged or of another version."""
        stamp, lengths = unpacked_lengths(FILE_HEADER, MAGIC, content)
        return cls(Stamp(*stamp), lengths)


def good_lengths(data: bytes, left: int) -> NDArray[np.uint64]:
    """Return the lengths of the records that begin in `data`, up to the first that is damaged or incomplete.

    `left` is the number of bytes in the file from the beginning of `data` on.
    """
    lengths: list[int] = []
    begins: list[int] = []
    at, last = 0, len(data) - HEADER
    while at <= last:
        (length,) = unpack_length(data, at)
        begins.append(at)
        lengths.append(length)
        at += length + FRAMING
    if at > left:
        lengths.pop()
        begins.pop()
    found = np.array(lengths, np.uint64)
    if len(lengths) < MANY:
        good = [length_intact(data, begin) for begin in begins]
    else:
        words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))  # the uint32 at every byte offset
        good = masked(crcs_of_lengths(found.view(np.int64))) == words[np.array(begins) + 8]
    return found[: len(good) if np.all(good) else int(np.argmin(good))]


def records_in(data: memoryview, spans: Sequence[int]) -> list[bytes] | None:
    """Return the records in `data`, each with its size in bytes; None if one of them is damaged."""
    lengths = [span - FRAMING for span in spans]
    if min(lengths, default=-1) < 0:
        return None
    if len(lengths) >= MANY and run_of_one_length(data, 0, len(lengths)) == (lengths[0], len(lengths)):
        records, good = of_one_length(data, 0, lengths[0], len(lengths))
        return records if good and len(set(lengths)) == 1 else None
    if scan(data, 0, len(lengths)) != lengths:
        return None
    records = records_at(data, 0, lengths)
    return [*records] if intact(data, 0, lengths, records) else None


def lost_record(data: Buffer, name: str, begin: int, most: int) -> DataLossError:
    """Return the error of a record at `begin`, given the bytes that could be read."""
    parser = RecordParser(name, most=most)
    parser.jump(begin)
    parser.feed(data)
    parser.finish()
    return next((found for found in parser.parse(1) if isinstance(found, DataLossError)), changed(name))


def damaged_span(header: bytes, most: int) -> int:
    """Return how many bytes are needed to find the error of a record: all if it may be cut short."""
    readable = len(header) == HEADER and length_intact(header, 0) and unpack_length(header)[0] <= most
    return unpack_length(header)[0] + FRAMING if readable else len(header)


def changed(name: str) -> DataLossError:
    """Return the error for a file that has changed since its index was made."""
    return DataLossError(f"{name}: the file has changed since its index was read; build the dataset again")
