"""Datasets that a user's function makes of elements: how one is made, and how some of their elements are had again."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from asyncdata.errors import ResumeError
from asyncdata.executors.element_rng import DerivedSeeds
from asyncdata.executors.function_call import Call
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import Node, in_turn, node_of, nodes_of
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.tickets import END, ExplicitTickets, Position, Start, Ticket, Tickets, plain

__all__ = ("check_begun", "check_resumable", "from_inner", "inner_plan", "not_made", "seeds_below")


def seeds_below(outer: Node) -> tuple[int, ...]:
    """Return the seeds of a pipeline, from which functions that make datasets of its elements derive theirs."""
    return tuple(sorted({node.chance.seed for node in nodes_of(outer) if node.chance is not None}))


async def inner_plan(call: Call, block: Block, seeds: tuple[int, ...]) -> Node | Failure:
    """Return the plan of the dataset that a user's function makes of the one element of `block`, or the failure.

    Steps without a seed get one that is derived from `seeds`, the same when the pipeline resumes.
    """
    item, ticket = block.items[0], block.tickets[0]
    if block.failed:
        return item
    with DerivedSeeds(seeds):
        result = await call.run_async(item, ticket) if call.is_async else call.run(block).items[0]
    if type(result) is Failure:
        return result
    try:
        return node_of(result, call)
    except Exception as error:  # also errors of its `repr`, for the message
        return call.failure(error, ticket)


def check_resumable(call: Call, plan: Node, begin: Position) -> None:
    """Raise `ResumeError` if a dataset that was begun may have drawn another order, as it was made outside of its
    function, without a seed."""
    if begin is None or begin == END:
        return
    for node in nodes_of(plan):
        if node.chance is not None and not node.chance.is_repeatable and not node.preserves_tickets:
            raise ResumeError(
                f"{call.name} has returned a dataset that was begun when the state was saved, with {node.label()} "
                "without a seed: it draws another order, and elements would be lost and repeated. Give it a seed, as "
                "shuffle(seed=1), or make it inside of the function; the order still differs from dataset to dataset"
            )


def check_begun(call: Call, failure: Failure, begun: Sequence[Position]) -> None:
    """Raise `ResumeError` if a dataset cannot be made now that had given elements: what comes next may be another one
    or the same, as a failure may overtake the element that the dataset is made of."""
    if begun and begun[0] is not None:
        raise ResumeError(
            f"{call.name}: the dataset that had been begun when the state was saved could not be made again: "
            f"{type(failure.error).__name__}: {failure.error}"
        ) from failure.error


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
) -> Blocks:
    """Yield the elements with these tickets, in this order, of the datasets that `function` makes of `outer`'s."""
    wanted: dict[Ticket, tuple[Ticket, list[Ticket]]] = {}
    for parent, child in tickets:
        wanted.setdefault(plain(parent), (parent, []))[1].append(child)
    found: dict[Ticket, Any] = {}
    seeds = seeds_below(outer)
    async with aclosing(outer.open(scope, Demand(), Start(END, [parent for parent, _ in wanted.values()]))) as source:
        async for block in source:
            parent = plain(block.tickets[0])
            async with aclosing(inner_items(function, block, scope, wanted[parent][1], seeds)) as items:
                async for child, item in items:
                    found[parent, plain(child)] = item
    for part in in_turn(found, tickets, want):
        yield part


async def inner_items(
    function: Call, block: Block, scope: Scope, tickets: Sequence[Ticket], seeds: tuple[int, ...]
) -> AsyncGenerator[tuple[Ticket, Any], None]:
    """Yield elements of the dataset that is made from one element, with their tickets in it."""
    plan = await inner_plan(function, block, seeds)
    if type(plan) is Failure:
        yield None, plan
        return
    rest = [ticket for ticket in tickets if ticket is not None]
    check_resumable(function, plan, rest or None)
    async with aclosing(plan.open(scope.at(block.tickets[0]), Demand(64), Start(END, rest))) as source:
        async for part in source:
            for pair in zip(part.tickets, part.items, strict=True):
                yield pair
