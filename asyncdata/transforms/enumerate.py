"""enumerate: elements with their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from operator import index
from typing import Any, final

from asyncdata.elements.spec import TensorSpec
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import PlaceBelow, Unary
from asyncdata.graph.stages import Fold, Step
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.tickets import END, Numbered, Position, ReplayedTickets, Start, Ticket, Tickets

__all__ = ("Enumerate",)


@dataclass(frozen=True, eq=False)
class Enumerate(Unary):
    """Pairs (number, element), counted from `start`."""

    start: int = 0

    def stage(self) -> Fold:
        return Fold(lambda _: Enumerator(self.start))

    @property
    def random_access(self) -> bool:
        return self.input.random_access

    def address(self, places: Sequence[int]) -> Sequence[Ticket]:
        inner = self.input.address(places)
        return [(self.start + place, ticket) for place, ticket in zip(places, inner, strict=True)]

    def place_below(self, position: Position) -> PlaceBelow:
        number, inner = position
        return PlaceBelow(inner, number - self.start, exactly=True)

    def seek(self, count: int) -> Position:
        return [self.start + count, self.input.seek(count)]

    async def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Give the elements the numbers that they had."""
        done = 0
        async with aclosing(self.input.open(scope, want, Start(END, [inner for _, inner in tickets]))) as source:
            async for block in source:
                numbers = [number for number, _ in tickets[done : done + len(block)]]
                given = ReplayedTickets(tickets, done, done + len(block), END)
                done += len(block)
                yield numbered(numbers, block, given)

    @property
    def signature(self) -> Any:
        inner = self.input.signature
        return None if inner is None else (TensorSpec((), "int64"), inner)


class Enumerator(Step):
    """Counts; a failed element has its number like any other."""

    def __init__(self, start: int) -> None:
        self.next = start

    def resume(self, position: Position) -> Start:
        number, inner = position
        self.next = index(number)
        return Start.of(inner)

    def feed(self, block: Block) -> Block:
        numbers = range(self.next, self.next + len(block))
        self.next = numbers.stop
        return numbered(numbers, block, EnumerateTickets(block.tickets, numbers))


def numbered(numbers: Sequence[int], block: Block, tickets: Tickets) -> Block:
    """Return pairs of numbers and items; a failure stays one."""
    pairs = list(zip(numbers, block.items, strict=True))
    if block.failed:
        return Block([pair[1] if type(pair[1]) is Failure else pair for pair in pairs], tickets, True)
    return Block(pairs, tickets)


@final
class EnumerateTickets(Tickets):
    """The tickets of numbered elements."""

    __slots__ = ("base", "numbers")

    def __init__(self, base: Tickets, numbers: range) -> None:
        self.base = base
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Ticket:
        return Numbered(self.numbers[index], self.base[index])

    def at(self, count: int) -> Position:
        return [self.numbers.start + count, self.base.at(count)]
