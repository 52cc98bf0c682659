"""NpyParser: rows of arrays in NumPy's files, `.npy` and `.npz`, without I/O."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from typing import Any, Final

import numpy as np

from asyncdata.errors import DataLossError
from asyncdata.formats.column_parser import ColumnParser
from asyncdata.formats.npy import LONGEST, MAGIC, NpyHeader, array_of, header_of
from asyncdata.formats.record_limits import record_too_long

__all__ = ("HEADER_BYTES", "MAX_FILE_BYTES", "NpyParser", "is_by_rows", "is_numpys")

ZIP: Final = b"PK\x03\x04"
EMPTY_ZIP: Final = b"PK\x05\x06"

MAX_FILE_BYTES: Final = 4 << 30
"""The largest file whose arrays must be in memory before their first row is known."""

LIMIT: Final = "max_file_bytes"

DAMAGED: Final = (ValueError, zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError)
"""The exceptions of `zipfile` for a damaged archive."""

HEADER_BYTES: Final = 2 * LONGEST
"""More bytes than any header has."""

BLOCK: Final = 1 << 20
"""About how many bytes are decoded together."""


class NpyParser(ColumnParser):
    """Turns the bytes of a file into rows of its array; for `.npz` into dicts of rows of its arrays.

    >>> import io
    >>> file = io.BytesIO()
    >>> np.save(file, np.arange(6).reshape(3, 2))
    >>> parser = NpyParser()
    >>> parser.feed(file.getvalue())
    >>> [row.tolist() for row in parser.parse(limit=10)]
    [[0, 1], [2, 3], [4, 5]]
    """

    def __init__(self, name: str = "array", most: int = MAX_FILE_BYTES) -> None:
        super().__init__(name)
        self._most = most
        self._header: NpyHeader | None = None
        self._content = bytearray()  # of a file that cannot be read row by row
        self._is_zip = False
        self._left = 0  # rows that are still to come
        self._start = b""

    @property
    def _by_rows(self) -> bool:
        return self._header is not None and is_by_rows(self._header)

    def start(self, data: bytes) -> bool:
        """Take the first bytes of a file that is resumed at a later row; return whether more are needed."""
        size = header_size(data)
        if size is None or size > len(data):
            return True
        self._open(data[:size])
        return False

    def jump(self, offset: int) -> None:
        super().jump(offset)
        if offset and self._header is not None:
            self._left = self._header.shape[0] - (offset - self._header.begin) // self._header.row_bytes

    def decoded(self) -> tuple[Any, int] | None:
        if self._header is None and not self._is_zip and not self._begun():
            return None
        if self._is_zip:
            return self._arrays()
        header = self._header
        if header is None or not self._left:
            return self._end()
        if not self._by_rows:
            return self._complete_array(header)
        count = max(1, min(self._left, BLOCK // header.row_bytes, self.waiting // header.row_bytes))
        data = self.taken(count * header.row_bytes)
        if data is None:
            return self._cut_short()
        self._left -= count
        return np.frombuffer(bytearray(data), header.dtype).reshape(count, *header.shape[1:]), count

    def _begun(self) -> bool:
        """Return whether the header has been read, or the data has ended."""
        while (size := header_size(self._start)) is None or size > len(self._start):
            more = self.taken(10 if not self._start else 2 if size is None else size - len(self._start))
            if more is None:
                self._check_beginning()
                return False
            self._start += more
            if self._start.startswith((ZIP, EMPTY_ZIP)):
                self._content += self._start
                self._is_zip = True
                return True
            self._check_magic(self._start)
            if (header_size(self._start) or 0) > HEADER_BYTES:
                break  # which is an error
        self._open(self._start)
        if self._by_rows:
            self.offset = self.at
        return True

    def _check_beginning(self) -> None:
        """Raise if no more bytes come."""
        if self.finished:
            raise DataLossError(
                f"{self.name}: it is cut short, or not a NumPy file: at byte {self.at} more of a header was expected"
            )

    def _check_magic(self, data: bytes) -> None:
        if not data.startswith(MAGIC):
            raise DataLossError(
                f"{self.name}: at byte 0 {MAGIC!r} was expected, which a .npy file begins with, or {ZIP!r} of .npz, "
                f"got {data[:6]!r}"
            )

    def _open(self, data: bytes) -> None:
        """Take the header."""
        try:
            header = header_of(data)
        except ValueError as error:
            raise DataLossError(f"{self.name}: {error}") from None
        if not header.shape:
            raise DataLossError(f"{self.name}: it holds one value of {header.dtype}, which has no rows")
        if header.row_bytes > self._most:
            raise record_too_long(self.name, "a row", self._most, LIMIT)
        self._header, self._left = header, header.shape[0]

    def _cut_short(self) -> None:
        if self.finished:
            raise DataLossError(f"{self.name}: it is cut short: at byte {self.at} {self._left} more rows were expected")

    def _end(self) -> None:
        """Raise if there are bytes after the array."""
        if self.waiting:
            raise DataLossError(f"{self.name}: it continues at byte {self.at}, where its array ends")

    def _gathered(self, what: str) -> None:
        """Take all bytes that have arrived."""
        self._content += self.taken(self.waiting) or b""
        if len(self._content) > self._most:
            raise record_too_long(self.name, what, self._most, LIMIT)

    def _complete_array(self, header: NpyHeader) -> tuple[Any, int] | None:
        """Return an array that is not stored row by row, once it is complete."""
        self._gathered("the array, which is stored column by column,")
        if len(self._content) < header.nbytes and not self.finished:
            return None
        try:
            array = array_of(bytes(self._start + self._content))
        except ValueError as error:
            raise DataLossError(f"{self.name}: {error}") from None
        self.at, self._left, self._content = self.at, 0, bytearray()
        return array, len(array)

    def _arrays(self) -> tuple[Any, int] | None:
        """Return the arrays of a `.npz` file, once it is complete."""
        if self._left < 0:
            return None
        self._gathered("the file")
        if not self.finished:
            return None
        arrays = self._members(bytes(self._content))
        self._left, self._content = -1, bytearray()
        lengths = {name: len(array) if array.ndim else -1 for name, array in arrays.items()}
        if len(set(lengths.values())) > 1 or -1 in lengths.values():
            raise DataLossError(f"{self.name}: its arrays differ in their numbers of rows: {lengths}")
        return arrays, next(iter(lengths.values()), 0)

    def _members(self, content: bytes) -> dict[str, Any]:
        """Return the arrays in an archive by name."""
        with self._archive(content) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > self._most:
                raise record_too_long(self.name, "the content of its arrays", self._most, LIMIT)
            found: dict[str, Any] = {}
            for member in members:
                try:
                    found[member.filename.removesuffix(".npy")] = array_of(archive.read(member))
                except DAMAGED as error:
                    where = f"{member.filename} at byte {member.header_offset}"
                    raise DataLossError(f"{self.name}: {where}: {error}") from None
            return found

    def _archive(self, content: bytes) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(io.BytesIO(content))
        except DAMAGED as error:
            what = f"it ends at byte {self.at}, where the directory of a .npz archive was expected"
            raise DataLossError(f"{self.name}: it is cut short, or damaged: {what}: {error}") from None

    def ended(self) -> None:
        if self._by_rows:
            super().ended()


def header_size(data: bytes) -> int | None:
    """Return the size of a header in bytes, `None` if it is not known yet."""
    if len(data) < 10:
        return None
    if data[6] > 1:
        return None if len(data) < 12 else 12 + struct.unpack_from("<I", data, 8)[0]
    return 10 + struct.unpack_from("<H", data, 8)[0]


def is_numpys(head: bytes) -> bool:
    """Return whether a file has the first bytes of NumPy's files."""
    return head.startswith((MAGIC, ZIP, EMPTY_ZIP))


def is_by_rows(header: NpyHeader) -> bool:
    """Return whether rows are stored one after another, so that any of them can be read."""
    return not header.by_columns and header.row_bytes > 0
