"""WindowParser: elements that are found many at a time, in one window of a file's bytes after another, without I/O."""

from __future__ import annotations

from typing import Any, TypeAlias

from asyncdata.elements.columns import ColumnBatch

__all__ = ("WindowParser",)

Buffer: TypeAlias = bytes | bytearray | memoryview


class WindowParser:
    """Turns the bytes of a file into elements. A subclass returns those that end in the next window from `split`."""

    def __init__(self) -> None:
        self.data: Buffer = b""  # the data being split, from `at` on
        self.at: int = 0
        self.rest: bytearray = bytearray()  # the beginning of an element
        self.found: Any = []  # the last elements found; `given` of them have been returned
        self.given = 0
        self._begin = 0  # where the first of `found` begins
        self.end: int = 0  # where the element after the last of them begins
        self.finished = False
        self.stopped = False  # at an error that replaces the rest of the file

    @property
    def lost(self) -> bool:
        """Whether the last element returned is an error that replaces the rest of the file."""
        return self.stopped and self.given == len(self.found)

    @property
    def offset(self) -> int:
        """A byte offset at which an element begins, `skip` elements before the next one."""
        return self.end if self.given == len(self.found) else self._begin

    @property
    def skip(self) -> int:
        """How many elements between `offset` and the next one have been returned."""
        return self.given % len(self.found) if self.found else 0

    def jump(self, offset: int) -> None:
        """Begin with the bytes from `offset` on, where an element begins."""
        self.end = offset

    def feed(self, data: Buffer) -> None:
        """Take the file's next bytes, after `parse` has returned nothing; they must not change until it does again."""
        self.data, self.at = data, 0

    def finish(self) -> None:
        """Mark the end of the data."""
        self.finished = True

    def parse(self, limit: int) -> Any:
        """Return at most `limit` elements of the data, in order; none if it needs more data or has ended."""
        if self.given == len(self.found):
            self._begin, self.given = self.end, 0
            self.found = self.split()
        found = self.found[self.given : self.given + limit]
        self.given += len(found)
        return found

    def split(self) -> list[Any] | ColumnBatch:
        """Return the elements that end in the next window with an end of an element."""
        raise NotImplementedError
