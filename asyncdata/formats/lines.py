"""LineParser: lines of text as bytes, split as TensorFlow does, without I/O."""

from __future__ import annotations

from typing import Any, TypeAlias

from asyncdata.formats.record_limits import MAX_RECORD_BYTES, offset_in, record_too_long

__all__ = ("LineParser",)

Buffer: TypeAlias = bytes | bytearray | memoryview


class LineParser:
    r"""Turns the bytes of a file into lines, without line ends.

    A line ends at `\n`; every `\r` is removed, wherever it is. The text after the last `\n` is a line unless it is
    empty. A line of more than `most` bytes, `\r` included, is an error, and the last element.

    >>> parser = LineParser()
    >>> parser.feed(b"one\r\n\ntwo")
    >>> parser.parse(limit=10)
    [b'one', b'']
    >>> parser.finish()
    >>> parser.parse(limit=10)
    [b'two']
    """

    window = 1 << 16
    """How many bytes are split at once: a fraction of a millisecond's work, whatever the size of the data."""

    def __init__(self, name: str = "text", most: int = MAX_RECORD_BYTES, *, compressed: bool = False) -> None:
        self.name = name
        self.where = offset_in(compressed)
        self._most = most
        self._data: Buffer = b""  # the data being split, from `_at` on
        self._at = 0
        self._rest = bytearray()  # the beginning of a line
        self._lines: list[Any] = []  # the last lines that were split; `_given` of them have been returned
        self._given = 0
        self._begin = 0  # where the first of `_lines` begins
        self._next = 0  # where the line after the last of them begins
        self._finished = False
        self._stopped = False  # at a line that is too long

    @property
    def lost(self) -> bool:
        """Whether the last line returned is an error that replaces the rest of the file."""
        return self._stopped and self._given == len(self._lines)

    @property
    def offset(self) -> int:
        """A byte offset at which a line begins, `skip` lines before the next one."""
        return self._next if self._given == len(self._lines) else self._begin

    @property
    def skip(self) -> int:
        """How many lines between `offset` and the next one have been returned."""
        return self._given % len(self._lines) if self._lines else 0

    def jump(self, offset: int) -> None:
        """Begin with the bytes from `offset` on, where a line begins."""
        self._next = offset

    def feed(self, data: Buffer) -> None:
        """Take the file's next bytes, after `parse` has returned nothing; they must not change until it does again."""
        self._data, self._at = data, 0

    def finish(self) -> None:
        """Mark the end of the data."""
        self._finished = True

    def parse(self, limit: int) -> list[Any]:
        """Return at most `limit` lines of the data, in order; [] if it needs more data or has ended."""
        if self._given == len(self._lines):
            self._begin, self._given = self._next, 0
            self._lines = self._split()
        lines = self._lines[self._given : self._given + limit]
        self._given += len(lines)
        return lines

    def _split(self) -> list[Any]:
        """Return the lines that end in the next window with an end of a line."""
        while self._at < len(self._data) and not self._stopped:
            window = bytes(self._data[self._at : self._at + self.window])
            end = window.rfind(b"\n")
            if end >= 0:
                self._at += end + 1
                if lines := self._taken(window[:end], 1):
                    return lines
                continue  # all lines may be blank, which are skipped
            self._at += len(window)
            self._rest += window
            if len(self._rest) > self._most:
                return self._taken(b"", 0)
        return self._taken(b"", 0) if self._finished and self._rest and not self._stopped else []

    def _taken(self, taken: bytes, more: int) -> list[Any]:
        """Return the elements on these lines, and advance by them and `more` bytes."""
        if self._rest:
            self._rest += taken
            taken = bytes(self._rest)
            self._rest.clear()
        begin, self._next = self._next, self._next + len(taken) + more
        if len(taken) > self._most and (found := self._up_to_long(taken.split(b"\n"), begin)):
            return found
        lines = self.elements(taken, begin)
        return lines if more or lines != [b""] else []

    def _up_to_long(self, lines: list[bytes], begin: int) -> list[Any]:
        """Return the elements before the first line that is too long, and its error; [] if no line is."""
        at = begin
        for place, line in enumerate(lines):
            if len(line) > self._most:
                self._stopped = True
                error = record_too_long(self.name, f"the line at {self.where} {at}", self._most)
                return [*(self.elements(b"\n".join(lines[:place]), begin) if place else ()), error]
            at += len(line) + 1
        return []

    def elements(self, taken: bytes, begin: int) -> list[Any]:
        r"""Return the elements on complete lines at `begin`, the last of them without its `\n`."""
        return taken.replace(b"\r", b"").split(b"\n")
