"""JSON Lines: a value of JSON on each line; a step without I/O."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, Final

from asyncdata.errors import DataLossError, MissingDependencyError
from asyncdata.formats.lines import LineParser
from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.runtime.optional_packages import require

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
        with suppress(ValueError, RecursionError):
            return [*map(self._decode, lines)]
        return self._one_by_one(lines, begin)

    def _one_by_one(self, lines: list[bytes], begin: int) -> list[Any]:
        """Return the values on lines of which some are blank, are no JSON, or are such as Python alone takes for it."""
        found: list[Any] = []
        for line in lines:
            if line.strip(b" \t\r"):
                try:
                    found.append(self._value(line))
                except (ValueError, RecursionError) as error:
                    found.append(DataLossError(f"{self.name}: the line at {self.where} {begin} is no JSON: {error}"))
            begin += len(line) + 1
        return found

    def _value(self, line: bytes) -> Any:
        """Return the value on a line, which `json` decides on: NaN, 1e999, half a surrogate pair."""
        with suppress(ValueError, RecursionError):
            return self._decode(line)
        return read_json(line)


def read_json(line: bytes) -> Any:
    return json.loads(str(line, "utf-8"))


@cache
def decoder() -> Callable[[bytes], Any]:
    """Return the quickest function there is that reads JSON; what it fails on, Python's own is asked about."""
    try:
        return require("msgspec.json", "JsonLinesDataset").Decoder().decode
    except MissingDependencyError:
        return read_json
