"""The lines of a log for what was delivered: many elements or batches in one line, where their tickets are alike."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from asyncdata.runtime.position_codec import FEW, Columns, columns_of, join_columns, pack_columns, rows_of, shape_of
from asyncdata.runtime.tickets import Tickets

__all__ = ("Delivered", "text_of")

COMPACT: Final = json.JSONEncoder(separators=(",", ":"))

MANY: Final = 1 << 12
"""So many batches, or other elements, are written at once if no state is asked for."""

MANY_TICKETS: Final = 1 << 16
"""So many elements and members of batches are."""


class Alike(NamedTuple):
    """Consecutive elements whose tickets are integers, or tuples of these; or batches of such members."""

    columns: Columns
    length: int
    """How many tickets the columns have."""
    sizes: Sequence[int] | None = None
    """How many members each batch has."""

    @property
    def steps(self) -> int:
        """How many elements they are."""
        return self.length if self.sizes is None else len(self.sizes)

    def goes_on(self, other: Alike) -> bool:
        """Return whether the other ones can be in one line with these."""
        same = (self.sizes is None) == (other.sizes is None)
        return same and shape_of(self.columns) == shape_of(other.columns)


class Delivered:
    """What was delivered and is not written yet: numbers and text, which keep no block in memory."""

    def __init__(self) -> None:
        self.parts: dict[int, str | Alike] = {}
        """By the number of the first element: the line of one, or what goes into a line."""
        self.size = 0

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def is_long(self) -> bool:
        """Whether so much has come that it must be written."""
        return len(self.parts) >= MANY or self.size >= MANY_TICKETS

    def add(self, place: int, ticket: Any, failed: bool = False) -> int:
        """Take an element, by its number in the epoch and its ticket as JSON; return the number after it."""
        self.parts[place] = line_of(place, ticket, failed)
        return place + 1

    def add_alike(self, place: int, tickets: Tickets, start: int, stop: int, sizes: Sequence[int] | None = None) -> int:
        """Take elements with these tickets, or batches of so many of them, from a place on; return the place after
        them; `ValueError` if they are not alike."""
        columns = tickets.ordinals(start, stop)
        if columns is None:
            columns = columns_of([*tickets.between(start, stop)])
        found = Alike(columns, stop - start, sizes)
        self.parts[place] = found
        self.size += found.length
        return place + found.steps

    def lines(self) -> Iterator[str]:
        """Yield the lines of all."""
        group: list[Alike] = []
        first = place = 0
        for begin, part in self.parts.items():
            if group and not (isinstance(part, Alike) and begin == place and group[0].goes_on(part)):
                yield from lines_of(first, group)
                group = []
            if isinstance(part, str):
                yield part
            else:
                first = first if group else begin
                group.append(part)
                place = begin + part.steps
        if group:
            yield from lines_of(first, group)


def lines_of(first: int, group: Sequence[Alike]) -> Iterator[str]:
    """Yield one line for elements whose tickets are alike, or a line for each if they are few."""
    columns, count = join_columns([part.columns for part in group]), sum(part.length for part in group)
    sizes = None if group[0].sizes is None else [*chain.from_iterable(part.sizes or () for part in group)]
    found = run_of(columns) or (pack_columns(columns, count) if count >= FEW else None)
    if found is not None:
        each = {} if sizes is None else {"each": sizes[0] if len({*sizes}) == 1 else sizes}
        yield text_of({"steps": [first, sum(part.steps for part in group)], **each, "of": found})
        return
    rows = rows_of(columns)
    if sizes is not None:
        rows = [{"of": rows[begin:stop]} for begin, stop in pairwise(accumulate(sizes, initial=0))]
    for place, row in enumerate(rows, first):
        yield line_of(place, row)


def run_of(columns: Columns) -> dict[str, list[int]] | None:
    """Return the first of consecutive numbers, and how many they are; `None` for others."""
    if isinstance(columns, dict) or len(columns) < 3 or columns[-1] - columns[0] != len(columns) - 1:
        return None
    return {"run": [int(columns[0]), len(columns)]} if (np.diff(columns) == 1).all() else None


def line_of(place: int, ticket: Any, failed: bool = False) -> str:
    """Return the line of one element."""
    return f"[{place},{text_of(ticket)}{',1]' if failed else ']'}"


def text_of(value: Any) -> str:
    """Return a value as JSON without spaces."""
    return COMPACT.encode(value)
