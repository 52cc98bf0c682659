"""flat_map: a dataset for each element, one after another."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import ClassVar, Final, Protocol

from asyncdata.executors.function_call import Call
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import PHYSICAL, REPLACEABLE, Node, nodes_of
from asyncdata.graph.stages import Merge, Opener, split, yield_to_loop
from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.resharding import Resharding, listed, resharded_open_groups
from asyncdata.runtime.tickets import FRESH, ChildTickets, Position, Start, Ticket, Tickets, replaying_first
from asyncdata.transforms.inner_datasets import (
    check_begun,
    check_resumable,
    from_inner,
    inner_plan,
    not_made,
    seeds_below,
)
from asyncdata.transforms.interleave_inputs import CycleSlot, Elsewhere, ParallelInputs
from asyncdata.transforms.interleave_position import InterleavePosition

__all__ = ("FlatMap",)


AT_ONCE: Final = 256
"""Inner datasets of at most so many elements are not run, if all elements are in memory."""


class Catalog(Protocol):
    """Knows the elements of all inner datasets by number, and has them without running the input."""

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    def address(self, places: Sequence[int]) -> Sequence[Ticket]:
        """Return the tickets of the elements at these places."""
        ...

    def seek(self, count: int) -> tuple[int, Position]:
        """Return the number of the input's element that element `count` comes from, and the position in its dataset."""
        ...

    @property
    def is_broken(self) -> bool:
        """Whether the failure of a source is among the elements."""
        ...

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Yield the elements with these tickets, in this order."""
        ...


@dataclass(frozen=True, eq=False)
class FlatMap(Node):
    """The elements of `function(element)`, a dataset, for each element in turn."""

    input: Node
    function: Call = field(metadata=REPLACEABLE)
    catalog: Catalog | None = field(default=None, metadata=PHYSICAL)
    elsewhere: Elsewhere | None = field(default=None, repr=False, metadata=PHYSICAL)
    """Where the datasets run, if not here: then the next ones are started before their turn."""

    travels: ClassVar[bool] = True
    """Whether the datasets may run elsewhere: the elements that they are made from are small."""

    @property
    def dataset_function(self) -> Call:
        return self.function

    def stage(self) -> Merge:
        return Merge(self.blocks)

    @property
    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY if self.catalog is None else len(self.catalog)

    @property
    def random_access(self) -> bool:
        return self.catalog is not None

    def address(self, places: Sequence[int]) -> Sequence[Ticket]:
        return super().address(places) if self.catalog is None else self.catalog.address(places)

    def seek(self, count: int) -> Position:
        if self.catalog is None:
            return super().seek(count)
        element, inner = self.catalog.seek(count)
        return [self.input.seek(element), inner]

    @property
    def may_grow(self) -> bool:
        """Not after a step that holds elements: the last dataset is made again, of another one if more come."""
        return self.input.may_grow and not any(node.retains_elements for node in nodes_of(self.input))

    @property
    def source_fails(self) -> bool:
        return self.catalog is not None and self.catalog.is_broken

    @property
    def identity(self) -> str:
        return self.function.name

    def label(self) -> str:
        return self.function.shown

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        if self.elsewhere is not None:
            return self.elsewhere.plan_here(dataclasses.replace(self, elsewhere=None)).fetch(scope, want, tickets)
        if self.catalog is None:
            return from_inner(self.input, self.function, scope, want, tickets)
        return self.catalog.fetch(scope, want, tickets)

    def blocks(self, scope: Scope, inputs: Sequence[Opener], want: Demand, position: Position) -> Blocks:
        """Run one dataset after the other."""
        begin, *begun = self.parse_position(position or (None,), list)
        run = self.in_turn if self.elsewhere is None else self.ahead
        return run(scope, inputs[0], want, begin, begun)

    @property
    def by_place(self) -> bool:
        """Whether a position names elements of the input by their places."""
        return self.input.in_order and not self.input.shared

    async def in_turn(
        self, scope: Scope, opener: Opener, want: Demand, begin: Position, begun: list[Position]
    ) -> Blocks:
        """Read one element, run its dataset to the end, then read the next."""
        by_place, seeds = self.by_place, seeds_below(self.input)
        async with aclosing(opener(scope, Demand(), Start.of(begin))) as outer:
            async for block in outer:
                plan = await inner_plan(self.function, block, seeds)
                later, is_empty = begun[1:], True
                if type(plan) is Failure:
                    check_begun(self.function, plan, begun)
                    yield not_made(block.tickets, plan, later)
                    begun = later
                    continue
                ticket, inside = block.tickets[0], partial(place_inside, block.tickets, by_place, later)
                if begun:
                    check_resumable(self.function, plan, begun[0])
                found = None if begun else plan.at_once(AT_ONCE)
                if found is not None:
                    for part in chain.from_iterable(split(one, want) for one in found):
                        is_empty = False
                        yield part.ticketed(ChildTickets(ticket, part.tickets, inside))
                else:
                    start = Start.of(begun[0]) if begun else FRESH
                    async with aclosing(plan.open(scope.at(ticket), want, start)) as source:
                        async for part in source:
                            is_empty = False
                            yield part.ticketed(ChildTickets(ticket, part.tickets, inside))
                begun = later
                if is_empty:
                    await yield_to_loop()

    async def ahead(self, scope: Scope, opener: Opener, want: Demand, begin: Position, begun: list[Position]) -> Blocks:
        """Run several datasets at once, and yield the elements of the first one to its end; then of the next."""
        assert self.elsewhere is not None
        by_place = self.by_place
        window = Window(self.input, self.function, self.elsewhere, self.elsewhere.at_once)
        opened = ParallelInputs(window, scope, opener, InterleavePosition(begin, waiting=begun))
        try:
            while (slot := await opened.next()) is not None:
                begun = begun[1:]
                if isinstance(slot, tuple):
                    yield not_made(*slot, begun)
                    continue
                inside = partial(place_inside, slot.outer, by_place, begun)
                while slot.left or await slot.fill(want.items):
                    yield drawn(slot, want.items, inside)
                await slot.close()
        finally:
            await opened.close()

    def reshard(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        outer, inners = resharded_open_groups(map(listed, positions), resharding, self.input.resharded)
        return [outer, *inners]


@dataclass(frozen=True)
class Window:
    """The datasets of a flat_map that are read at once; the first one is given out."""

    input: Node
    function: Call
    elsewhere: Elsewhere
    cycle_length: int
    block_length: int = 1
    workers: None = None
    tuner: None = None


def drawn(slot: CycleSlot, most: int, inside: Callable[[Position], Position]) -> Block:
    """Return at most so many of a dataset's elements that are ready."""
    assert slot.inner is not None
    start = slot.start
    part = slot.take(min(most, slot.left))
    return part.ticketed(ChildTickets(slot.ticket, slot.inner.slice(start, slot.start), inside))


def place_inside(outer: Tickets, by_place: bool, later: Sequence[Position], position: Position) -> Position:
    """Return a position in the dataset of one element; `later` are those in the datasets of the following ones."""
    return [replaying_first(outer, by_place), position, *later]
