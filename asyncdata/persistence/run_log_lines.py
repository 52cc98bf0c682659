"""The lines of a log for what was delivered: many elements or batches in one line, where their tickets are alike."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate, chain, pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from asyncdata.runtime.column_compression import compressed, compressed_text
from asyncdata.runtime.columns import Columns, joined_columns
from asyncdata.runtime.orders import Order, Ordered
from asyncdata.runtime.position_codec import FEW, columns_of, pack_columns, rows_of, shape_of
from asyncdata.runtime.tickets import Tickets

__all__ = ("MOST_TEXT", "Delivered", "name_of_order", "text_of")

FEWEST_BYTES: Final = 1 << 12
"""Lines of single elements that have fewer bytes together are not deflated."""

LONG: Final = 1 << 20
"""So many bytes of them are deflated at once."""

MOST_TEXT: Final = 1 << 26
"""The most bytes that are in a line which is deflated."""

COMPACT: Final = json.JSONEncoder(separators=(",", ":"))

MANY: Final = 1 << 12
"""So many batches, or other elements, are written at once if no state is asked for."""

WORTH: Final = 256
"""Fewer elements of an order take less room one by one than as places."""

MANY_TICKETS: Final = 1 << 16
"""So many elements and members of batches are."""


class Alike(NamedTuple):
    """Consecutive elements whose tickets are integers, or tuples of these; or batches of such members."""

    columns: Columns
    length: int
    """How many tickets the columns have."""
    sizes: Sequence[int] | None = None
    """How many members each batch has."""
    order: Order | None = None
    """If there is one, the columns are places in it."""

    @property
    def steps(self) -> int:
        """How many elements they are."""
        return self.length if self.sizes is None else len(self.sizes)

    def listed(self) -> Alike:
        """Return them with their tickets instead of places."""
        return self if self.order is None else self._replace(columns=self.order.columns(self.columns), order=None)

    def goes_on(self, other: Alike) -> bool:
        """Return whether the other ones can be in one line with these."""
        same = (self.sizes is None) == (other.sizes is None)
        return same and self.order == other.order and shape_of(self.columns) == shape_of(other.columns)


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

    def add_alike(self, place: int, tickets: Tickets, sizes: Sequence[int] | None, ordered: Ordered | None) -> int:
        """Take elements with these tickets, or batches of so many of them, from a place on; return the place after
        them; `ValueError` if they are not alike."""
        order, columns = ordered or (None, tickets.in_columns(0, len(tickets)))
        if columns is None:
            columns = columns_of([*tickets.between(0, len(tickets))])
        found = Alike(columns, len(tickets), sizes, order)
        self.parts[place] = found
        self.size += found.length
        return place + found.steps

    def lines(self, orders: set[str]) -> Iterator[str]:
        """Yield the lines of all; each order's before the first that has places in it, if it is not in `orders`."""
        group: list[Alike] = []
        first = place = 0
        for begin, part in together(self.with_orders_worth_it(orders)):
            if group and not (isinstance(part, Alike) and begin == place and group[0].goes_on(part)):
                yield from lines_of(first, group, orders)
                group = []
            if isinstance(part, str):
                yield part
            else:
                first = first if group else begin
                group.append(part)
                place = begin + part.steps
        if group:
            yield from lines_of(first, group, orders)

    def with_orders_worth_it(self, known: set[str]) -> dict[int, str | Alike]:
        """Return the parts, with tickets instead of places in orders whose lines would make the log longer."""
        sizes = Counter[tuple[int, ...]]()
        for part in self.parts.values():
            if isinstance(part, Alike) and part.order is not None:
                sizes[id_of(part.order)] += part.length
        few = {name for name, size in sizes.items() if size < (min(FEW, WORTH) if known else WORTH)}
        return {
            place: part.listed() if isinstance(part, Alike) and part.order and id_of(part.order) in few else part
            for place, part in (self.parts.items() if few else ())
        } or self.parts


def together(parts: Mapping[int, str | Alike]) -> Iterator[tuple[int, str | Alike]]:
    """Yield the parts, with lines of single elements that follow each other as one, where these are long."""
    lines = list[tuple[int, str]]()
    size = 0
    for place, part in parts.items():
        if lines and (size >= LONG or not isinstance(part, str)):
            yield from deflated_lines(lines, size)
            lines, size = [], 0
        if isinstance(part, str):
            lines.append((place, part))
            size += len(part)
        else:
            yield place, part
    yield from deflated_lines(lines, size)


def deflated_lines(lines: list[tuple[int, str]], size: int) -> Iterator[tuple[int, str]]:
    """Yield one line for those of some elements, if there are many bytes, and it takes half of them or less."""
    if FEWEST_BYTES <= size < MOST_TEXT - len(lines):
        line = text_of({"lines": compressed_text("\n".join([line for _, line in lines]))})
        if 2 * len(line) <= size:
            yield lines[0][0], line
            return
    yield from lines


def id_of(order: Order) -> tuple[int, ...]:
    """Return by what orders are told from each other."""
    return (order.key, *order.turns)


def lines_of(first: int, group: Sequence[Alike], orders: set[str]) -> Iterator[str]:
    """Yield one line for elements whose tickets are alike, or a line for each if they are few."""
    columns, count = joined_columns([part.columns for part in group]), sum(part.length for part in group)
    sizes = None if group[0].sizes is None else [*chain.from_iterable(part.sizes or () for part in group)]
    order, found = group[0].order, None
    if order is not None:
        name, line = line_of_order(order)
        if name not in orders:
            orders.add(name)
            yield line
        found = {"order": name, **(progression_of(columns) or pack_columns(columns, count))}
    found = found or run_of(columns) or compressed(columns, count)
    found = found or (pack_columns(columns, count) if count >= FEW else None)
    if found is not None:
        each = {} if sizes is None else {"each": sizes[0] if len({*sizes}) == 1 else sizes}
        yield text_of({"steps": [first, sum(part.steps for part in group)], **each, "of": found})
        return
    rows = rows_of(columns)
    if sizes is not None:
        rows = [{"of": rows[begin:stop]} for begin, stop in pairwise(accumulate(sizes, initial=0))]
    for place, row in enumerate(rows, first):
        yield line_of(place, row)


def line_of_order(order: Order) -> tuple[str, str]:
    """Return the name of an order in a log, which is a hash of it, and its line."""
    turns = {"turns": order.turns} if order.turns else {}
    described = {**order.described(), **turns}
    name = name_of_order(described)
    return name, text_of({"order": name, **described})


def name_of_order(described: Mapping[str, Any]) -> str:
    """Return a hash of an order as JSON."""
    return blake2b(text_of(described).encode(), digest_size=8).hexdigest()


def progression_of(columns: Columns) -> dict[str, list[int]] | None:
    """Return the first of numbers that grow in equal steps, how many they are, and the step; `None` for others."""
    step = int(columns[1] - columns[0]) if len(columns) > 1 else 1
    return {"run": [int(columns[0]), len(columns), step]} if (np.diff(columns) == step).all() else None


def run_of(columns: Columns) -> dict[str, list[int]] | None:
    """Return the first of consecutive numbers, and how many they are; `None` for others."""
    if isinstance(columns, dict) or len(columns) < 3 or columns[-1] - columns[0] != len(columns) - 1:
        return None
    return {"run": [int(columns[0]), len(columns)]} if (np.diff(columns) == 1).all() else None


def line_of(place: int, ticket: Any, failed: bool = False) -> str:
    return f"[{place},{text_of(ticket)}{',1]' if failed else ']'}"


def text_of(value: Any) -> str:
    """Return a value as JSON without spaces."""
    return COMPACT.encode(value)
