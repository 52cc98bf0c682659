"""flat_map: a dataset for each element, one after the other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Final, Protocol

from asyncdata.executors.function_call import Call
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import PHYSICAL, REPLACEABLE, Node, in_turn, node_of
from asyncdata.graph.stages import Merge, Opener, breathe, split
from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.resharding import Resharding, listed, resharded_open_groups
from asyncdata.runtime.tickets import (
    END,
    FRESH,
    ChildTickets,
    ExplicitTickets,
    Position,
    Start,
    Ticket,
    Tickets,
    plain,
    reopening,
)

__all__ = ("Catalog", "FlatMap", "from_inner", "inner_plan", "not_made")


AT_ONCE: Final = 256
"""Inner datasets of so many elements at most are not run, if all are at hand."""


async def inner_plan(call: Call, block: Block) -> Node | Failure:
    """Return the plan of the dataset that a user's function makes of the one element of `block`, or the failure."""
    item, ticket = block.items[0], block.tickets[0]
    if block.failed:
        return item
    result = await call.run_async(item, ticket) if call.is_async else call.run(block).items[0]
    if type(result) is Failure:
        return result
    try:
        return node_of(result, call)
    except Exception as error:  # also what its `repr`, for the message, raises
        return call.failure(error, ticket)


def not_made(outer: Tickets, failure: Failure, later: Sequence[Position] = ()) -> Block:
    """Return the failure of a function that should have made a dataset, in the place of its elements."""

    def position(count: int) -> Position:
        return [outer.at(count), *later] if count else [outer.at(count), None, *later]

    return Block([failure], ExplicitTickets([(outer[0], None)], position), True)


async def from_inner(
    outer: Node,
    function: Call,
    scope: Scope,
    want: Demand,
    tickets: Sequence[Ticket],
    then: Callable[[Node], Node] | None = None,
) -> Blocks:
    """Yield the elements with these tickets, in this order, of the datasets that `function` makes of `outer`'s.

    `then` returns what runs in the place of such a dataset, if that is another.
    """
    wanted: dict[Ticket, tuple[Ticket, list[Ticket]]] = {}
    for parent, child in tickets:
        wanted.setdefault(plain(parent), (parent, []))[1].append(child)
    found: dict[Ticket, Any] = {}
    async with aclosing(outer.open(scope, Demand(), Start(END, [parent for parent, _ in wanted.values()]))) as source:
        async for block in source:
            parent = plain(block.tickets[0])
            async with aclosing(inner_items(function, block, scope, wanted[parent][1], then)) as items:
                async for child, item in items:
                    found[parent, plain(child)] = item
    for part in in_turn(found, tickets, want):
        yield part


async def inner_items(
    function: Call, block: Block, scope: Scope, tickets: Sequence[Ticket], then: Callable[[Node], Node] | None
) -> AsyncGenerator[tuple[Ticket, Any], None]:
    """Yield elements of the dataset that is made of one element, with their tickets in it."""
    plan = await inner_plan(function, block)
    if type(plan) is Failure:
        yield None, plan
        return
    plan = plan if then is None else then(plan)
    rest = [ticket for ticket in tickets if ticket is not None]
    async with aclosing(plan.open(scope.at(block.tickets[0]), Demand(64), Start(END, rest))) as source:
        async for part in source:
            for pair in zip(part.tickets, part.items, strict=True):
                yield pair


class Catalog(Protocol):
    """Knows the elements of all inner datasets by number, and has them without running the input."""

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    def address(self, places: Sequence[int]) -> Sequence[Ticket]:
        """Return the tickets of the elements at these places."""
        ...

    def seek(self, count: int) -> tuple[int, Position]:
        """Return for which element of the input element `count` comes, and its position in what is made of that."""
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

    def label(self) -> str:
        return self.function.name

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        if self.catalog is None:
            return from_inner(self.input, self.function, scope, want, tickets)
        return self.catalog.fetch(scope, want, tickets)

    async def blocks(self, scope: Scope, inputs: Sequence[Opener], want: Demand, position: Position) -> Blocks:
        """Read one element, run its dataset to the end, then read the next."""
        begin, *begun = self.parse_position(position or (None,), list)
        by_place = self.input.in_order and not self.input.shared
        async with aclosing(inputs[0](scope, Demand(), Start.of(begin))) as outer:
            async for block in outer:
                plan = await inner_plan(self.function, block)
                later, is_empty = begun[1:], True
                if type(plan) is Failure:
                    yield not_made(block.tickets, plan, later)
                    begun = later
                    continue
                ticket, inside = block.tickets[0], partial(place_inside, block.tickets, by_place, later)
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
                    await breathe()

    def reshard(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        outer, inners = resharded_open_groups(map(listed, positions), resharding, self.input.resharded)
        return [outer, *inners]


def place_inside(outer: Tickets, by_place: bool, later: Sequence[Position], position: Position) -> Position:
    """Return a position in what is made of one element; `later` are those in what is made of the ones that follow."""
    return [reopening(outer, by_place), position, *later]
