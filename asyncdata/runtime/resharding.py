"""Resharding: divides the remaining elements of all shards among another number of processes.

Every process computes its part from the states of all: items are dealt in turn, first elements that were read and not
delivered, then those that were not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from asyncdata.runtime.tickets import END, Position, ReplayedTickets, Start, Ticket, replaying

__all__ = ("Resharding", "Share", "listed", "named", "replaying_tickets", "resharded_open_groups")

T = TypeVar("T")


class Share(NamedTuple):
    """The shard `number` of `num_shards`."""

    num_shards: int
    number: int

    def __str__(self) -> str:
        return f"shard({self.num_shards}, {self.number})"


class Resharding:
    """Selects the items of one share; `given` counts the items dealt so far to all, so that all get equally many."""

    def __init__(self, share: Share, epoch: tuple[Ticket, ...]) -> None:
        self.share = share
        self.epoch = epoch
        self.given = 0

    def at(self, turn: Ticket) -> Resharding:
        """Return the dealing within one repetition."""
        return Resharding(self.share, (*self.epoch, turn))

    def own_part(self, things: Sequence[T]) -> Sequence[T]:
        """Return this share's part of some items."""
        first = (self.share.number - self.given) % self.share.num_shards
        self.given += len(things)
        return things[first :: self.share.num_shards]


def replaying_tickets(position: Position, back: Iterable[Ticket]) -> Position:
    """Return the position that gives the elements with these tickets first."""
    tickets = [*back]
    return replaying(position, [ReplayedTickets(tickets, 0, len(tickets), END)])


def listed(position: Position) -> list[Position]:
    """Return a position as a list, with the input's position first; beginning and end are the input's own."""
    return cast("list[Position]", position) if isinstance(position, list) else [position]


def named(position: Position, inner: str) -> dict[str, Any]:
    """Return a position as a dict, with the input's position as `inner`; beginning and end are the input's own."""
    return cast("dict[str, Any]", position) if isinstance(position, dict) else {inner: position}


def resharded_open_groups(
    begun: Iterable[Sequence[Position]],
    resharding: Resharding,
    rest: Callable[[Sequence[Position], Resharding], Position],
) -> tuple[Position, list[Position]]:
    """Deal groups that were in progress; `rest` deals the elements after them.

    Each of `begun` is the position of an input, followed by the progress of the group of its first elements.
    """
    first: list[tuple[Ticket, Position]] = []
    others: list[Position] = []
    for position, *inners in begun:
        start = Start.of(position)
        first += zip(start.back, inners, strict=False)
        others.append(replaying_tickets(start.position, start.back[len(inners) :]))
    mine = [(ticket, inner) for ticket, inner in resharding.own_part(first) if inner != END]
    return replaying_tickets(rest(others, resharding), [ticket for ticket, _ in mine]), [inner for _, inner in mine]
