"""LineParser: lines of text as bytes, split as TensorFlow does, without I/O."""

from __future__ import annotations

from typing import Any

from asyncdata.formats.record_limits import MAX_RECORD_BYTES, offset_in, record_too_long
from asyncdata.formats.window_parser import WindowParser

__all__ = ("LineParser",)


class LineParser(WindowParser):
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
        super().__init__()
        self.name = name
        self.where = offset_in(compressed)
        self._most = most

    def split(self) -> list[Any]:
        while self.at < len(self.data) and not self.stopped:
            window = bytes(self.data[self.at : self.at + self.window])
            end = window.rfind(b"\n")
            if end >= 0:
                self.at += end + 1
                if lines := self._taken(window[:end], 1):
                    return lines
                continue  # all lines may be blank, which are skipped
            self.at += len(window)
            self.rest += window
            if len(self.rest) > self._most:
                return self._taken(b"", 0)
        return self._taken(b"", 0) if self.finished and self.rest and not self.stopped else []

    def _taken(self, taken: bytes, more: int) -> list[Any]:
        """Return the elements on these lines, and advance by them and `more` bytes."""
        if self.rest:
            self.rest += taken
            taken = bytes(self.rest)
            self.rest.clear()
        begin, self.end = self.end, self.end + len(taken) + more
        if len(taken) > self._most and (found := self._up_to_long(taken.split(b"\n"), begin)):
            return found
        lines = self.elements(taken, begin)
        return lines if more or lines != [b""] else []

    def _up_to_long(self, lines: list[bytes], begin: int) -> list[Any]:
        """Return the elements before the first line that is too long, and its error; [] if no line is."""
        at = begin
        for place, line in enumerate(lines):
            if len(line) > self._most:
                self.stopped = True
                error = record_too_long(self.name, f"the line at {self.where} {at}", self._most)
                return [*(self.elements(b"\n".join(lines[:place]), begin) if place else ()), error]
            at += len(line) + 1
        return []

    def elements(self, taken: bytes, begin: int) -> list[Any]:
        r"""Return the elements on complete lines at `begin`, the last of them without its `\n`."""
        return taken.replace(b"\r", b"").split(b"\n")
