"""JsonLinesParser: one JSON value on each line, without I/O."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import numpy as np

from asyncdata.errors import DataLossError
from asyncdata.formats.json_values import NO_JSON, decoder, json_value, lines_decoder
from asyncdata.formats.lines import LineParser
from asyncdata.formats.record_limits import MAX_RECORD_BYTES

__all__ = ("JsonLinesParser", "line_begins")

BOM: Final = b"\xef\xbb\xbf"
"""The byte order mark with which some programs begin UTF-8 files."""


class JsonLinesParser(LineParser):
    r"""Turns the bytes of a file into the values on its lines, as Python's `json` reads them.

    Blank lines are skipped. A line that is not valid JSON is an error in its place. A line of more than `most` bytes is
    an error, and the last element.

    >>> parser = JsonLinesParser()
    >>> parser.feed(b'{"a": 1}\n\n[2, 3]\n')
    >>> parser.parse(limit=10)
    [{'a': 1}, [2, 3]]
    """

    window = 1 << 18

    def __init__(self, name: str = "JSON Lines", most: int = MAX_RECORD_BYTES, *, compressed: bool = False) -> None:
        super().__init__(name, most, compressed=compressed)
        self._decode, self._decode_all = decoder(), lines_decoder()

    def elements(self, taken: bytes, begin: int) -> list[Any]:
        """Return the values on the complete lines at `begin`."""
        if not begin:
            blank = b" " * len(BOM)  # so that offsets do not change
            taken = blank + taken[len(BOM) :] if taken.startswith(BOM) else taken
        if self._decode_all is not None and (count := sure_lines(taken)):
            with suppress(*NO_JSON):
                if len(found := self._decode_all(taken)) == count:
                    return found
        lines = taken.split(b"\n")
        with suppress(*NO_JSON):
            return [*map(self._decode, lines)]
        return self._one_by_one(lines, begin)

    def _one_by_one(self, lines: list[bytes], begin: int) -> list[Any]:
        """Return the values on lines some of which are blank, not valid JSON, or valid only for Python's `json`."""
        found: list[Any] = []
        for line in lines:
            if line.strip(b" \t\r"):
                try:
                    found.append(json_value(line))
                except NO_JSON as error:
                    found.append(
                        DataLossError(f"{self.name}: the line at {self.where} {begin} is not valid JSON: {error}")
                    )
            begin += len(line) + 1
        return found


def sure_lines(data: bytes) -> int:
    r"""Return how many lines there are, or 0 if one of their ends is not between objects or arrays.

    No valid JSON has such an end of a line in it, so each value is on one line; if there are as many as lines, each
    line has one.

    >>> [sure_lines(data) for data in (b'{"a": 1}\n[2]', b"[[2]\n]", b'{"a": 1}\n\n[2]', b"1\n2")]
    [2, 0, 0, 0]
    """
    numbers = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(numbers == ord("\n"))
    if len(ends) and (ends[0] == 0 or ends[-1] == len(data) - 1):
        return 0
    sure = (numbers[ends - 1] | 32 == ord("}")) & (numbers[ends + 1] | 32 == ord("{"))  # brackets, too
    return len(ends) + 1 if sure.all() else 0


def line_begins(data: bytes, begin: int, most: int) -> tuple[list[int], bool]:
    r"""Return the offsets of complete lines at `begin` that are not blank, and whether the last one is too long.

    >>> line_begins(b'{"a": 1}\n\n[2, 3]\n', 100, 1000)
    ([100, 110], False)
    """
    numbers = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(numbers == ord("\n"))
    if len(data) and not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    starts = np.concatenate([np.zeros(min(len(ends), 1), np.int64), ends[:-1] + 1])
    long = np.flatnonzero(ends - starts > most)
    if len(long):
        starts, ends = starts[: long[0] + 1], ends[: long[0] + 1]
    first = numbers[np.minimum(starts, len(numbers) - 1)] if len(starts) else numbers[:0]
    unsure = np.flatnonzero((first <= ord(" ")) | ((first == BOM[0]) & (starts + begin == 0)))
    keep = np.ones(len(starts), bool)
    for place in unsure:
        if len(long) and place == len(starts) - 1:
            continue
        line = data[starts[place] : ends[place]]
        keep[place] = bool((line if starts[place] + begin else line.removeprefix(BOM)).strip(b" \t\r"))
    return (starts[keep] + begin).tolist(), bool(len(long))
