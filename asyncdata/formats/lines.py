"""Lines of text, as bytes, split as TensorFlow splits them: a step without I/O."""

from __future__ import annotations

from typing import Final, TypeAlias

__all__ = ("LineParser",)

Buffer: TypeAlias = bytes | bytearray | memoryview

WINDOW: Final = 1 << 16
"""How much is split at once: a fraction of a millisecond's work, whatever the size of what is fed."""


class LineParser:
    r"""Bytes of a file in, lines out, without their ends.

    A line ends at `\n`; every `\r` is left out, wherever it stands. What follows the last `\n` is a line if it is not
    empty.

    >>> parser = LineParser()
    >>> parser.feed(b"one\r\n\ntwo")
    >>> parser.parse(limit=10)
    [b'one', b'']
    >>> parser.finish()
    >>> parser.parse(limit=10)
    [b'two']
    """

    lost = False
    """No line is an error."""

    def __init__(self) -> None:
        self._data: Buffer = b""  # what is being split, from `_at` on
        self._at = 0
        self._rest = bytearray()  # the beginning of a line
        self._lines: list[bytes] = []  # what was split last, of which `_given` have been returned
        self._given = 0
        self._begin = 0  # where the first of `_lines` begins
        self._next = 0  # where the line after the last of them begins
        self._finished = False

    @property
    def offset(self) -> int:
        """A byte offset at which a line begins: that of the next one after `passed` more."""
        return self._next if self._given == len(self._lines) else self._begin

    @property
    def passed(self) -> int:
        """How many lines between `offset` and the next one have been returned."""
        return self._given % len(self._lines) if self._lines else 0

    @property
    def begun(self) -> int:
        """How many bytes of a line without an end were fed, once `parse` has returned nothing."""
        return len(self._rest)

    def jump(self, offset: int) -> None:
        """Begin with the bytes from `offset` on, where a line begins."""
        self._next = offset

    def feed(self, data: Buffer) -> None:
        """Take the file's next bytes, once `parse` has returned nothing; they must stay as they are until it does."""
        self._data, self._at = data, 0

    def finish(self) -> None:
        """Say that no more data will come."""
        self._finished = True

    def parse(self, limit: int) -> list[bytes]:
        """Return at most `limit` lines of what was fed, in order; [] when it needs more data or has ended."""
        if self._given == len(self._lines):
            self._begin, self._given = self._next, 0
            self._lines = self._split()
        lines = self._lines[self._given : self._given + limit]
        self._given += len(lines)
        return lines

    def _split(self) -> list[bytes]:
        """Return the lines that end in the next window which any line ends in."""
        while self._at < len(self._data):
            window = bytes(self._data[self._at : self._at + WINDOW])
            self._at += len(window)
            begun, newline, after = window.rpartition(b"\n")
            if newline:
                self._rest += begun
                lines = self._taken(1).split(b"\n")
                self._rest += after
                return lines
            self._rest += after
        last = self._taken(0) if self._finished else b""
        return [last] if last else []

    def _taken(self, more: int) -> bytes:
        r"""Return what is at hand without `\r`, and be that far and `more` bytes on."""
        taken = bytes(self._rest)
        self._next += len(taken) + more
        self._rest.clear()
        return taken.replace(b"\r", b"")
