"""Results that are made of several elements, their members: by which tickets they are made again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from itertools import chain
from typing import Any, Final

from asyncdata.executors.scope import Scope
from asyncdata.graph.node import Node
from asyncdata.runtime.block import Block, Blocks, Demand, Failure, LeftOut
from asyncdata.runtime.tickets import END, ReplayedTickets, Start, Ticket, Tickets

__all__ = ("alone", "members_of", "remade")

ALONE: Final = "alone"
"""Marks the ticket of an element that failed and is in no result with others."""


def alone(ticket: Ticket) -> Ticket:
    """Return the ticket of an element that passes alone; it may have members, as a failed batch, or have passed alone
    before."""
    return (ALONE, ticket) if isinstance(ticket, Tickets) or is_alone(ticket) else ticket


def is_alone(ticket: Ticket) -> bool:
    return isinstance(ticket, tuple) and ticket[:1] == (ALONE,)


def members_of(ticket: Ticket) -> Sequence[Ticket]:
    """Return the tickets of the elements that the item with this ticket was made from."""
    if isinstance(ticket, Tickets):
        return [*ticket]
    return [ticket[1]] if is_alone(ticket) else [ticket]


async def remade(
    node: Node, scope: Scope, tickets: Sequence[Ticket], make: Callable[[Block], Any], in_batches: bool = False
) -> Blocks:
    """Yield `make(members)` for each of these tickets, whose members are elements of `node`; one without members passes
    alone.

    If all results come `in_batches`, an element that failed before and succeeds now is a batch of its own. What is left
    out now is in none, and of a result without others only the place remains.
    """
    members, absent = [members_of(ticket) for ticket in tickets], node.left_out
    if absent is not None:
        members = [[member for member in one if not absent(member)] for one in members]
    inner = Demand()
    async with aclosing(node.open(scope, inner, Start(END, [*chain.from_iterable(members)]))) as source:
        for place, one in enumerate(members):
            if absent is not None and not one:
                yield Block([Failure(LeftOut())], ReplayedTickets(tickets, place, place + 1, END), True)
                continue
            found = await exactly(source, inner, len(one))
            if found is None:
                return
            joined = isinstance(tickets[place], Tickets) or (in_batches and not found.failed)
            item = make(found) if joined else found.items[0]
            yield Block([item], ReplayedTickets(tickets, place, place + 1, END), type(item) is Failure)


async def exactly(source: Blocks, want: Demand, count: int) -> Block | None:
    """Return the next `count` elements as one block, `None` if there are fewer."""
    parts: list[Block] = []
    while count:
        want.items = count
        part = await anext(source, None)
        if part is None:
            return None
        parts.append(part)
        count -= len(part)
    return Block.join(parts)
