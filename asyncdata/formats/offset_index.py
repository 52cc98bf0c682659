"""OffsetIndex: where each element of a file begins, and the small file that stores it.

That file is a header, the lengths of the elements as little-endian integers of the smallest width that fits, and the
CRC32C of everything before. The header, also little-endian: `ad-begin`, the version and the bytes per length (uint32
each), the kind of the elements (8 bytes), the data file's size (uint64) and modification time in nanoseconds (int64),
the limit on an element's length (uint64), where the first one begins (uint64), whether the last one is an error that
replaces the rest of the file (uint64), and the number of elements (uint64).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from asyncdata.system.crc32c import crc32c

__all__ = ("Marks", "OffsetIndex", "packed_lengths", "unpacked_lengths")

MAGIC: Final = b"ad-begin"
VERSION: Final = 1
HEADER: Final = struct.Struct("<8sII8sQqQQQQ")
WIDTHS: Final = (1, 2, 4, 8)


@dataclass(frozen=True)
class Marks:
    """What an index must match: the version of its file, and the arguments of the reader."""

    kind: str
    """The name of the elements, of at most eight letters."""
    most: int
    size: int
    changed_ns: int


class OffsetIndex:
    """Where the elements of a file begin; the last one ends with the file.

    >>> index = OffsetIndex(Marks("lines", 100, 9, 0), [0, 4], lost=False)
    >>> OffsetIndex.from_bytes(index.to_bytes()).span(1)
    (4, 5)
    """

    def __init__(self, marks: Marks, begins: Sequence[int] | npt.NDArray[np.int64], lost: bool) -> None:
        self.marks = marks
        self.count = len(begins)
        self.lost = lost
        self.begins = np.append(np.asarray(begins, np.int64), marks.size)

    def span(self, number: int) -> tuple[int, int]:
        """Return where an element begins, and the number of bytes up to the next."""
        begin = int(self.begins[number])
        return begin, int(self.begins[number + 1]) - begin

    def to_bytes(self) -> bytes:
        """Return the serialized index."""
        lengths, marks = np.diff(self.begins), self.marks
        fields = (marks.kind.encode(), marks.size, marks.changed_ns, marks.most, int(self.begins[0]), self.lost)
        return packed_lengths(HEADER, MAGIC, fields, lengths.astype(np.min_scalar_type(lengths.max(initial=0))))

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Return the index that `to_bytes` serialized; `ValueError` if it is damaged or of another version."""
        (kind, size, changed, most, first, lost), lengths = unpacked_lengths(HEADER, MAGIC, content)
        ends = np.cumsum(lengths, dtype=np.int64)
        begins = first + np.concatenate([np.zeros(min(len(ends), 1), np.int64), ends[:-1]])
        return cls(Marks(kind.rstrip(b"\0").decode(), most, size, changed), begins, bool(lost))


def packed_lengths(
    header: struct.Struct, magic: bytes, fields: Sequence[Any], lengths: npt.NDArray[np.unsignedinteger]
) -> bytes:
    """Return lengths after a header that ends with their number, and before a checksum."""
    width = lengths.dtype.itemsize
    content = header.pack(magic, VERSION, width, *fields, len(lengths)) + lengths.astype(f"<u{width}").tobytes()
    return content + crc32c(content).to_bytes(4, "little")


def unpacked_lengths(header: struct.Struct, magic: bytes, content: bytes) -> tuple[list[Any], npt.NDArray[Any]]:
    """Return the fields and lengths that were packed; `ValueError` if they are damaged or of another version."""
    if len(content) < header.size + 4 or crc32c(content[:-4]) != int.from_bytes(content[-4:], "little"):
        raise ValueError("the index is damaged")
    kind, version, width, *fields, count = header.unpack_from(content)
    known = (kind, version) == (magic, VERSION) and width in WIDTHS
    if not known or len(content) != header.size + count * width + 4:
        raise ValueError("not an index, or one of an unknown version")
    return fields, np.frombuffer(content, f"<u{width}", count, header.size)
