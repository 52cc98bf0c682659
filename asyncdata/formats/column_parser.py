"""ColumnParser: rows that are decoded many at a time, as columns, without I/O."""

from __future__ import annotations

from typing import Any, Final, TypeAlias, cast

from asyncdata.elements.borrowed_columns import borrowed
from asyncdata.elements.columns import ColumnBatch
from asyncdata.errors import DataLossError, PlanError

__all__ = ("ROWS", "ColumnParser", "part_of")

Buffer: TypeAlias = bytes | bytearray | memoryview

ROWS: Final = 4096
"""How many rows become elements together, if elements are needed."""


class ColumnParser:
    """Turns the bytes of a file into rows. An error of the file is the last element.

    A subclass takes bytes of the file by `taken`, and returns the columns that it decoded from `decoded`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.lost = False
        """Whether the last element returned is an error that replaces the rest of the file."""
        self.offset = 0
        """The byte offset at which reading can start, `skip` rows before the next one."""
        self.skip = 0
        self.finished = False
        self.at = 0
        """The offset of the next byte."""
        self._data: Buffer = b""
        self._rest = bytearray()
        self._columns: Any = None
        self._some: ColumnBatch | None = None  # the last part of them is returned next
        self._given = self._begin = self._rows = 0  # in `_some`, in the columns, and of them

    def jump(self, offset: int) -> None:
        """Begin with the bytes from `offset` on."""
        self.offset = self.at = offset

    def feed(self, data: Buffer) -> None:
        """Take the file's next bytes, after `parse` has returned nothing; they must not change until it does again."""
        self._data = data

    def finish(self) -> None:
        """Mark the end of the data."""
        self.finished = True

    def taken(self, size: int) -> bytes | None:
        """Return the next `size` bytes, or `None` if they have not all arrived."""
        if not self._rest and len(self._data) >= size:
            found = bytes(self._data[:size])
            self._data = memoryview(self._data)[size:]
        else:
            missing = size - len(self._rest)
            self._rest += self._data[:missing]
            self._data = memoryview(self._data)[missing:] if missing < len(self._data) else b""
            if len(self._rest) < size:
                return None
            found = bytes(self._rest)
            self._rest.clear()
        self.at += size
        return found

    def forget(self) -> None:
        """Drop the data that was fed."""
        self._rest.clear()
        self._data = b""

    @property
    def waiting(self) -> int:
        """How many bytes were fed and not taken."""
        return len(self._rest) + len(self._data)

    def decoded(self) -> tuple[Any, int] | None:
        """Return the next columns and how many rows they have, `None` if more bytes are needed, or at the end.

        Raises `DataLossError` for an error of the file.
        """
        raise NotImplementedError

    def ended(self) -> None:
        """Handle that all rows of the last decoded columns have been returned."""
        self.offset, self.skip = self.at, 0

    def parse(self, limit: int) -> list[Any] | ColumnBatch:
        """Return at most `limit` rows of the data; none if it needs more data or has ended."""
        try:
            while self._some is None:
                found = None if self.lost else self.decoded()
                if found is None:
                    return []
                self._columns, self._rows = found
                self._begin = 0
                self._next_part()
        except (DataLossError, PlanError) as error:
            self.lost = True
            return [error]
        return self._part(limit)

    def _next_part(self) -> None:
        """Prepare the next rows, if there are any."""
        size = min(ROWS, self._rows - self._begin)
        self._given, self._some = 0, None
        if size:
            self._some = borrowed(part_of(self._columns, self._begin, self._begin + size), size)
            self._begin += size
        else:
            self._columns = None
            self.ended()

    def _part(self, limit: int) -> list[Any] | ColumnBatch:
        """Return some of the prepared rows."""
        some = self._some
        if some is None:
            return []
        part = some[self._given : self._given + limit]
        self._given += len(part)
        self.skip += len(part)
        if self._given == len(some):
            self._next_part()
        return part


def part_of(columns: Any, start: int, stop: int) -> Any:
    """Return some rows of columns."""
    if isinstance(columns, dict):
        named = cast("dict[str, Any]", columns)
        return {name: part_of(column, start, stop) for name, column in named.items()}
    return columns[start:stop]
