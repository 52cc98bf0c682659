"""Splits CSV records with the same number of fields at once, with NumPy; other records are left to the parser."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ("Grid", "plain_grid", "quoted_grid")

QUOTE: Final = ord('"')
NEWLINE: Final = ord("\n")
RETURN: Final = ord("\r")

SEPARATORS: Final = b"\x1f\x1e\x1d\x1c\x00\x01\x02\x03"
"""One of these that occurs in no record replaces all separators."""


class Grid(NamedTuple):
    """The fields of records, one after another, the number of each record's fields, and the records' size in bytes."""

    fields: list[bytes]
    width: int
    size: int

    def without_first(self) -> Grid:
        """Return the fields of all records but the first."""
        return self._replace(fields=self.fields[self.width :])


def plain_grid(data: bytes, delimiter: bytes, size: int) -> Grid | None:
    """Return the fields of records without quotes, the first `size` bytes; `None` if their numbers differ."""
    text = data[:size]
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if not text.endswith(b"\n"):
        text += b"\n"
    bytes_ = np.frombuffer(text, np.uint8)
    ends = bytes_ == NEWLINE
    separators = np.flatnonzero(ends | (bytes_ == delimiter[0]))
    width = even_width(ends[separators])
    if not width:
        return None
    fields = text.replace(b"\n", delimiter).split(delimiter)
    fields.pop()  # after the last separator
    return Grid(fields, width, size)


def quoted_grid(data: bytes, delimiter: bytes, last: bool) -> Grid | None:
    """Return the fields of the records at the beginning of `data`, some with quotes, all of it if it is the `last`.

    `None` if a quote is misplaced, the numbers of fields differ, or no record ends.
    """
    framed = np.frombuffer(b"\n%b\n" % data, np.uint8)  # so that each byte has neighbours
    quotes = framed == QUOTE
    outside = np.cumsum(quotes, dtype=np.uint8) & 1 == 0  # also at a quote that closes
    text, ends, dropped = with_newlines(framed, outside, last)
    found = np.flatnonzero(ends)
    separator = next((one for one in SEPARATORS if one not in data), None)
    if not len(found) or separator is None:
        return None
    stop = int(found[-1])
    structural = lone_quotes(framed[: stop + 2], np.flatnonzero(quotes[:stop]), delimiter)
    separators = np.flatnonzero(ends[: stop + 1] | ((framed[: stop + 1] == delimiter[0]) & outside[: stop + 1]))
    width = even_width(ends[separators])
    if structural is None or not width:
        return None
    text[separators] = separator
    part_of_field = np.ones(stop, bool)
    part_of_field[structural] = False
    part_of_field[dropped[dropped < stop]] = False
    fields = text[1:stop][part_of_field[1:]].tobytes().split(bytes([separator]))
    return Grid(fields, width, min(stop, len(data)))


def with_newlines(
    framed: NDArray[np.uint8], outside: NDArray[np.bool_], last: bool
) -> tuple[NDArray[np.uint8], NDArray[np.bool_], NDArray[np.intp]]:
    r"""Return a copy of the text in which each record ends in `\n`, the places of these, and the bytes to drop."""
    text = framed.copy()
    returns = np.flatnonzero((framed == RETURN) & outside)
    paired = framed[returns + 1] == NEWLINE  # the last one too; unless it is the `last`, that is not known yet
    text[returns[~paired]] = NEWLINE
    ends = (text == NEWLINE) & outside
    ends[0] = False
    if not last or ends[-2]:
        ends[-1] = False
    return text, ends, returns[paired]


def lone_quotes(framed: NDArray[np.uint8], quotes: NDArray[np.intp], delimiter: bytes) -> NDArray[np.intp] | None:
    """Return the quotes that are not part of a field; `None` if one is misplaced.

    A quote opens a field after a separator and closes it before one. Of a doubled quote inside a field the first seems
    to close the field and the second to open it; the second one is part of the field.
    """
    opening, closing = quotes[::2], quotes[1::2]
    beside = np.zeros(256, bool)
    beside[[delimiter[0], NEWLINE, RETURN, QUOTE]] = True
    before = framed[opening - 1]
    if len(quotes) % 2 or not beside[before].all() or not beside[framed[closing + 1]].all():
        return None
    return np.concatenate([closing, opening[before != QUOTE]])


def even_width(ends: NDArray[np.bool_]) -> int:
    """Return how many fields each record has, 0 if they differ; `ends` says which separators end a record."""
    width = int(ends.argmax()) + 1
    rows: NDArray[Any] | None = ends.reshape(-1, width) if len(ends) % width == 0 else None
    return width if rows is not None and rows[:, -1].all() and not rows[:, :-1].any() else 0
