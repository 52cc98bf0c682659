"""FixedParser: records of a fixed length between a header and a footer, without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from struct import Struct
from typing import TypeAlias

from asyncdata.errors import DataLossError

__all__ = ("FixedLayout", "FixedParser")

Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True)
class FixedLayout:
    """The length of each record of a file, and of the header and the footer.

    >>> FixedLayout(record_bytes=4, header_bytes=2).count(14)
    3
    """

    record_bytes: int
    header_bytes: int = 0
    footer_bytes: int = 0

    def count(self, size: int) -> int | None:
        """Return how many records a file of `size` bytes has, `None` if it cannot have this layout."""
        inside = size - self.header_bytes - self.footer_bytes
        return None if inside < 0 or inside % self.record_bytes else inside // self.record_bytes

    def begin(self, record: int) -> int:
        """Return the byte offset of a record."""
        return self.header_bytes + record * self.record_bytes

    def misfit(self, path: str, size: int) -> DataLossError:
        """Return the error for a file that cannot have this layout."""
        around = self.header_bytes + self.footer_bytes
        return DataLossError(
            f"{path}: {size} bytes are not a multiple of the record length, {self.record_bytes} bytes"
            + (f", plus {around} bytes of header and footer" if around else "")
        )


class FixedParser:
    """Turns the bytes of a file into records.

    `name` is the file's name for messages.

    >>> parser = FixedParser("letters", FixedLayout(record_bytes=2, footer_bytes=1))
    >>> parser.feed(b"aabbccf")
    >>> parser.parse(limit=2), parser.parse(limit=10)
    ([b'aa', b'bb'], [b'cc'])
    """

    skip = 0
    """The next record begins at `offset` itself."""

    def __init__(self, name: str, layout: FixedLayout) -> None:
        self._name = name
        self._layout = layout
        self._unpack = Struct(f"{layout.record_bytes}s").iter_unpack
        self._data: Buffer = b""  # from `_at` on, which is `offset` in the file
        self._at = 0
        self._finished = False
        self.offset = 0
        self.lost = False

    def jump(self, offset: int) -> None:
        """Begin with the bytes from `offset` on: the file's beginning, or where a record begins."""
        self.offset = offset

    def feed(self, data: Buffer) -> None:
        """Take the file's next bytes, after `parse` has returned nothing; they must not change until it does again."""
        if isinstance(self._data, bytearray) and self._data:
            self._data += data
        else:
            self._data = data

    def finish(self) -> None:
        """Mark the end of the data."""
        self._finished = True

    def parse(self, limit: int) -> list[bytes | DataLossError]:
        """Return at most `limit` records of the data, in order; [] if it needs more data or has ended.

        If the file ends inside a record, or before its footer, the last element is an error.
        """
        self._skip_header()
        size = self._layout.record_bytes
        count = min(limit, (len(self._data) - self._at - self._layout.footer_bytes) // size)
        if count <= 0 or self.offset < self._layout.header_bytes:
            return self._settle()
        span = memoryview(self._data)[self._at : self._at + count * size]
        self._advance(len(span))
        return [*chain.from_iterable(self._unpack(span))]

    def _skip_header(self) -> None:
        missing = self._layout.header_bytes - self.offset
        if missing > 0:
            self._advance(min(missing, len(self._data) - self._at))

    def _settle(self) -> list[bytes | DataLossError]:
        """Store an incomplete record until more data comes; at the end of the data it is an error."""
        if self._at or not isinstance(self._data, bytearray):
            self._data, self._at = bytearray(memoryview(self._data)[self._at :]), 0
        end = self.offset + len(self._data)
        if not self._finished or self._layout.count(end) is not None:
            return []
        self._data, self._finished, self.lost = b"", False, True
        return [self._layout.misfit(self._name, end)]

    def _advance(self, size: int) -> None:
        self._at += size
        self.offset += size
