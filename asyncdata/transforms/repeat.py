"""repeat: a dataset several times, one turn after the other."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, final

from asyncdata.elements.isolation import is_unchanging
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import Unary, finite, repeated
from asyncdata.graph.stages import Opener, Rerun, yield_to_loop
from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.resharding import Resharding
from asyncdata.runtime.tickets import END, ChildTickets, Position, Start, Ticket, Tickets, natural
from asyncdata.sources.random_access import FEW, InMemorySource, is_row

__all__ = ("Repeat", "in_turn", "turn_and_places")


MANY: Final = 64
"""Rows of a source from which on it is no loss to put turns together of blocks, and not of elements."""


@dataclass(frozen=True, eq=False)
class Repeat(Unary):
    """The input `count` times, forever if -1: then a turn without elements is the last."""

    count: int

    def stage(self) -> Rerun:
        return Rerun(self.blocks, waits=False)

    @property
    def cardinality(self) -> int:
        return repeated(self.input.cardinality, self.count)

    def label(self) -> str:
        return f"repeat({'' if self.count < 0 else self.count})"

    @property
    def random_access(self) -> bool:
        return self.input.random_access and finite(self.input.cardinality)

    def address(self, places: Sequence[int]) -> Sequence[Ticket]:
        if self.count == 1:
            return self.input.address(places)
        size = self.input.cardinality
        inner = self.input.address([place % size for place in places])
        return [(place // size, ticket) for place, ticket in zip(places, inner, strict=True)]

    def seek(self, count: int) -> Position:
        from asyncdata.transforms.concatenate import known_size

        if self.count == 1:
            return self.input.seek(count)
        turn, place = divmod(count, known_size(self.input)) if count else (0, 0)
        inner = self.input.seek(place)  # as in `Take`
        return END if turn >= self.count >= 0 else [turn, inner]

    @property
    def preserves_tickets(self) -> bool:
        return self.count == 1

    def run(self, scope: Scope, want: Demand, start: Start) -> Blocks:
        return self.input.open(scope, want, start) if self.count == 1 else super().run(scope, want, start)

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        from asyncdata.transforms.concatenate import from_parts

        return from_parts(lambda turn, inner, start: self.input.open(scope.at(turn), inner, start), want, tickets)

    async def blocks(self, scope: Scope, opener: Opener, want: Demand, position: Position) -> Blocks:
        """Run the input again and again, each time as an epoch of its own."""
        repetition, places = self.parse_position(position or (0,), turn_and_places)
        while self.count < 0 or repetition < self.count:
            inner, later = places[0] if places else None, places[1:]
            if (
                isinstance(self.input, InMemorySource)
                and finite(self.input.cardinality)
                and not later
                and is_row(inner)
            ):
                async with aclosing(self.rows(self.input, want, repetition, inner or 0)) as source:
                    async for block in source:
                        yield block
                return
            empty = inner is None
            async with aclosing(opener(scope.at(repetition), want, Start.of(inner))) as source:
                async for block in source:
                    empty = False
                    yield block.ticketed(in_turn(repetition, block.tickets, later))
            if empty and (self.count < 0 or self.input.cardinality == 0):
                return
            if empty:
                await yield_to_loop()
            repetition, places = repetition + 1, later

    async def rows(self, source: InMemorySource, want: Demand, turn: int, place: int) -> Blocks:
        """Yield the rows of a source in memory, of several turns in one block if the demand is that large."""
        size = source.size
        start, end = turn * size + min(place, size), sys.maxsize if self.count < 0 else self.count * size
        while size and start < end:
            stop = block_end(start, min(end, start + want.items), size)
            yield several_turns(source, start, stop)
            start = stop

    def reshard(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        if self.count == 1:
            return self.input.resharded(positions, resharding)
        parsed = [None if at == END else turn_and_places(at or (0,)) for at in positions]
        running = [place for place in parsed if place is not None]
        behind_all = self.count if None in parsed else 0  # one at its end has taken its part of every turn
        last = max(behind_all, *[turn + len(places) for turn, places in running])
        turns = range(min(turn for turn, _ in running), last)
        return [
            turns.start,
            *[self.input.resharded([place_in(turn, at) for at in parsed], resharding.at(turn)) for turn in turns],
        ]


def block_end(start: int, stop: int, size: int) -> int:
    """Return where a block of rows of several turns ends, `stop` at the latest: few rows of one turn are elements, and
    would make elements of all the others that could stay in columns."""
    head, rest = size - start % size, stop % size
    if size < MANY or stop - start < MANY or head >= stop - start:
        return stop
    if head < FEW:
        return start + head
    return stop - rest if rest < FEW else stop


def several_turns(source: InMemorySource, start: int, stop: int) -> Block:
    """Return rows, counted from the beginning of the first turn."""
    size = source.size
    (turn, first), (last, rest) = divmod(start, size), divmod(stop, size)
    tickets, full = TurnsOfRows(start, stop, size), last - turn - 1
    if turn == last:
        return source.block(first, rest).ticketed(tickets)
    if size >= MANY:
        turns = [source.block(first, size)]
        turns += repeated_block(source, full) if full else []
        return Block.join([*turns, source.block(0, rest)] if rest else turns).ticketed(tickets)
    rows = source.rows(first, size)
    every = source.rows(0, size) if full else []
    same = all(map(is_unchanging, every))  # else each turn gets copies of its own
    rows += every * full if same else chain.from_iterable(source.rows(0, size) for _ in range(full))
    return Block(rows + source.rows(0, rest) if rest else rows, tickets)


def repeated_block(source: InMemorySource, times: int) -> list[Block]:
    """Return the block of all rows so many times, with copies each time if they can be changed."""
    block = source.block(0, source.size)
    some = source.rows(0, 1) if block.columns else block.items
    if all(map(is_unchanging, some)):
        return [block] * times
    return [block, *[source.block(0, source.size) for _ in range(times - 1)]]


@final
class TurnsOfRows(Tickets):
    """The tickets of rows of a source in memory that is run again and again, counted from the beginning."""

    __slots__ = ("size", "start", "stop")

    def __init__(self, start: int, stop: int, size: int) -> None:
        self.start = start
        self.stop = stop
        self.size = size

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, index: int) -> Ticket:
        return divmod(self.start + index, self.size)

    def at(self, count: int) -> Position:
        turn, place = divmod(self.start + count, self.size)
        return [turn - 1, self.size] if count and not place else [turn, place]


def turn_and_places(position: Sequence[Any]) -> tuple[int, list[Position]]:
    """Return a position of a repetition: which turn, and where to begin in it and in those that follow."""
    turn, *places = position
    return natural(turn), places


def place_in(turn: int, place: tuple[int, Sequence[Position]] | None) -> Position:
    """Return the position within one turn of a run that has come to some turn, or to its end."""
    if place is None or turn < place[0]:
        return END
    first, places = place
    return places[turn - first] if turn - first < len(places) else None


def in_turn(turn: int, tickets: Tickets, later: Sequence[Position]) -> Tickets:
    """Return the tickets of elements of one turn; `later` is where to begin in the following ones."""
    return ChildTickets(turn, tickets, lambda position: [turn, position, *later])
