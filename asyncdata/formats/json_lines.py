"""JSON Lines: a value of JSON on each line; a step without I/O."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from asyncdata.errors import DataLossError
from asyncdata.formats.json_values import NO_JSON, decoder, json_value
from asyncdata.formats.lines import LineParser
from asyncdata.formats.record_limits import MAX_RECORD_BYTES

__all__ = ("JsonLinesParser",)

BOM: Final = b"\xef\xbb\xbf"
"""What some programs begin files of UTF-8 with."""


class JsonLinesParser(LineParser):
    r"""Bytes of a file in, the values on its lines out, each as Python's `json` reads it.

    Lines without anything on them are left out. One that is no JSON is an error in its place. A line of more than
    `most` bytes is an error, and the last element.

    >>> parser = JsonLinesParser()
    >>> parser.feed(b'{"a": 1}\n\n[2, 3]\n')
    >>> parser.parse(limit=10)
    [{'a': 1}, [2, 3]]
    """

    def __init__(self, name: str = "JSON Lines", most: int = MAX_RECORD_BYTES, *, compressed: bool = False) -> None:
        super().__init__(name, most, compressed=compressed)
        self._decode = decoder()

    def elements(self, taken: bytes, begin: int) -> list[Any]:
        """Return the values on whole lines that lie at `begin`."""
        if not begin:
            blank = b" " * len(BOM)  # so that offsets stay
            taken = blank + taken[len(BOM) :] if taken.startswith(BOM) else taken
        lines = taken.split(b"\n")
        with suppress(*NO_JSON):
            return [*map(self._decode, lines)]
        return self._one_by_one(lines, begin)

    def _one_by_one(self, lines: list[bytes], begin: int) -> list[Any]:
        """Return the values on lines of which some are blank, are no JSON, or are such as Python alone takes for it."""
        found: list[Any] = []
        for line in lines:
            if line.strip(b" \t\r"):
                try:
                    found.append(json_value(line))
                except NO_JSON as error:
                    found.append(DataLossError(f"{self.name}: the line at {self.where} {begin} is no JSON: {error}"))
            begin += len(line) + 1
        return found
