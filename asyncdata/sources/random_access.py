"""InMemorySource: sources that hold their elements in memory and read them by index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from asyncdata.errors import ResumeError
from asyncdata.executors.function_call import describe
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import Node, finite
from asyncdata.graph.stages import Produce
from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.tickets import END, Ordinals, Position, ReplayedTickets, Ticket, Tickets, natural

__all__ = ("FEW", "InMemorySource", "IndexedSource", "check_ordinals", "is_row")

NUMBERS: Final[set[type]] = {int, np.int64, np.intp}

FEW: Final = 16
"""Fewer rows than this become elements at once, as deferring that costs more."""


class IndexedSource(Node):
    """A source whose tickets are indices, and which can start at any index."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    @property
    def random_access(self) -> bool:
        return True

    def address(self, places: Sequence[int]) -> Sequence[Ticket]:
        return places

    def seek(self, count: int) -> Position:
        return count

    def read_before(self, position: Position) -> int | None:
        if position is None:
            return 0
        if position == END:
            return self.cardinality if finite(self.cardinality) else None
        return position if type(position) is int else None


class InMemorySource(IndexedSource):
    """A source in memory, whose rows are read by index and are the same in each epoch."""

    def rows(self, start: int, stop: int) -> list[Any]:
        """Return rows `start` to `stop`."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """How many rows there are."""
        raise NotImplementedError

    @property
    def is_in_memory(self) -> bool:
        """Whether reading rows takes no time and never fails."""
        return True

    @property
    def cardinality(self) -> int:
        return self.size

    def block(self, start: int, stop: int) -> Block:
        """Return rows `start` to `stop` as a block."""
        return Block(self.rows(start, stop), Ordinals(start, stop))

    def at_once(self, most: int) -> Iterator[Block] | None:
        if not self.is_in_memory or self.size > most:
            return None
        return iter([self.block(0, self.size)] if self.size else [])

    def gather(self, places: Sequence[int], tickets: Tickets) -> Block:
        """Return the rows at some indices as a block."""
        return Block([self.rows(place, place + 1)[0] for place in places], tickets)

    def stage(self) -> Produce:
        return Produce(self.blocks, waits=False)

    async def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        done = 0
        check_ordinals(self, tickets)
        while done < len(tickets):
            some = tickets[done : done + want.items]
            done += len(some)
            yield self.gather(some, ReplayedTickets(some, 0, len(some), END))

    async def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        """Yield as many rows as the demand, again and again."""
        start, size = 0 if position is None else self.parse_position(position, natural), self.size
        while start < size:
            stop = min(size, start + want.items)
            yield self.block(start, stop)
            start = stop


def check_ordinals(source: Node, tickets: Sequence[Ticket]) -> None:
    """Raise `ResumeError` unless these are tickets of rows: numbers."""
    if odd := {*map(type, tickets)} - NUMBERS:
        ticket = next(ticket for ticket in tickets if type(ticket) in odd)
        raise ResumeError(
            f"{source.label()}: the state lists {describe(ticket):.80}, which is no element of this source (the state "
            "is of another pipeline, or damaged; start without it)"
        )


def is_row(place: Position) -> bool:
    """Return whether a position is the beginning or a row, without rows to repeat first."""
    return place is None or (type(place) is int and place >= 0)
