"""concatenate: one dataset after the other."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

import numpy as np

from asyncdata.elements.structure import shared_spec
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import Node, UnseekableError, finite
from asyncdata.graph.stages import Merge, Opener
from asyncdata.options import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.tickets import END, NOTHING, Position, ReplayedTickets, Start, Ticket, children, natural
from asyncdata.transforms.mixture_reader import Choices, MixtureReader

__all__ = ("Concatenate", "from_parts", "known_size")


OPEN: Final = 16
"""How many parts are open at once to fetch elements, unless a node has more of them open anyway."""


@dataclass(frozen=True, eq=False)
class Concatenate(Node):
    """All elements of one input after the other."""

    nodes: tuple[Node, ...] = field(repr=False)

    @classmethod
    def of(cls, first: Node, others: Sequence[Node]) -> Concatenate:
        """Return the node for `others` after the first, whose inputs become its own if it is one: none lies deep."""
        return cls((*(first.nodes if isinstance(first, Concatenate) else (first,)), *others))

    def stage(self) -> Merge:
        return Merge(self.blocks, waits=False)

    @property
    def cardinality(self) -> int:
        sizes = [node.cardinality for node in self.nodes]
        if all(map(finite, sizes)):
            return sum(sizes)
        return INFINITE_CARDINALITY if INFINITE_CARDINALITY in sizes else UNKNOWN_CARDINALITY

    @property
    def random_access(self) -> bool:
        *before, _ = self.nodes
        return all(node.random_access for node in self.nodes) and all(finite(node.cardinality) for node in before)

    def address(self, places: Sequence[int]) -> Sequence[Ticket]:
        begins = list(accumulate((node.cardinality for node in self.nodes[:-1]), initial=0))
        parts = [bisect_right(begins, place) - 1 for place in places]
        inner = dict[int, list[int]]()
        for part, place in zip(parts, places, strict=True):
            inner.setdefault(part, []).append(place - begins[part])
        tickets = {part: iter(self.nodes[part].address(chosen)) for part, chosen in inner.items()}
        return [(part, next(tickets[part])) for part in parts]

    def seek(self, count: int) -> Position:
        last = len(self.nodes) - 1
        for part, node in enumerate(self.nodes[:last]):
            size = known_size(node)
            inner = node.seek(min(count, size))  # as in `Take`
            if count < size:
                return [part, inner]
            count -= size
        return [last, self.nodes[last].seek(count)]

    @property
    def signature(self) -> Any:
        return shared_spec([node.signature for node in self.nodes])

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        return from_parts(lambda index, inner, start: self.nodes[index].open(scope, inner, start), want, tickets)

    async def blocks(self, scope: Scope, inputs: Sequence[Opener], want: Demand, position: Position) -> Blocks:
        """Run one input after the other."""
        first, inner = self.parse_position(position or (0, None), part_and_place)
        for index in range(first, len(inputs)):
            async with aclosing(inputs[index](scope, want, Start.of(inner))) as source:
                async for block in source:
                    yield block.ticketed(children(index, block.tickets))
            inner = None


def known_size(node: Node) -> int:
    """Return how many elements a node gives, as far as can be counted."""
    size = node.cardinality
    if size in (0, UNKNOWN_CARDINALITY):
        raise UnseekableError(node.label())
    return size if finite(size) else sys.maxsize


def part_and_place(position: Sequence[Any]) -> tuple[int, Position]:
    """Return a position of these nodes: which part, and where in it."""
    part, inner = position
    return natural(part), inner


async def from_parts(
    open_part: Callable[[int, Demand, Start], Blocks], want: Demand, tickets: Sequence[Ticket], most: int = OPEN
) -> Blocks:
    """Yield the elements with these tickets, in this order, each from the part that it names.

    A part is opened once for all of its tickets, unless they name more than `most` parts, which are open at once.
    """
    done = 0
    while done < len(tickets):
        parts, wanted, chosen = by_part(map(tickets.__getitem__, range(done, len(tickets))), most)

        def open_named(
            number: int, inner: Demand, parts: list[int] = parts, wanted: list[list[Ticket]] = wanted
        ) -> Blocks:
            return open_part(parts[number], inner, Start(END, wanted[number]))

        async with AsyncExitStack() as stack:
            draws = MixtureReader(open_named, [NOTHING] * len(parts), stack)
            start = 0
            while start < len(chosen):
                drawn = await draws.draw(chosen[start : start + draws.draw_count(want)])
                if drawn.items:
                    stop = done + len(drawn.items)
                    yield Block(drawn.items, ReplayedTickets(tickets, done, stop, END), drawn.failed)
                    start, done = start + len(drawn.items), stop
                if drawn.ended is not None:  # an element is not there any more: the caller sees which
                    return


def by_part(tickets: Iterable[Ticket], most: int) -> tuple[list[int], list[list[Ticket]], Choices]:
    """Return the first parts that are named, the tickets in each, and in which order these come.

    Stops before a ticket that names one part too many.
    """
    numbers: dict[int, int] = {}
    wanted: list[list[Ticket]] = []
    chosen: list[int] = []
    for part, child in tickets:
        number = numbers.setdefault(part, len(wanted))
        if number == len(wanted):
            if number == most:
                break
            wanted.append([])
        wanted[number].append(child)
        chosen.append(number)
    return list(numbers), wanted, np.array(chosen, np.intp)
