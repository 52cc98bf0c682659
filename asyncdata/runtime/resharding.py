"""Resharding: what the shards of some processes have left, divided among another number of processes.

Every process works out its own hand from the states of all: things are dealt in turn, elements that were read and not
delivered first, then what nobody has read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from asyncdata.runtime.tickets import END, Position, ReplayedTickets, Start, Ticket, going_on

__all__ = ("Resharding", "Share", "behind", "listed", "named", "resharded_open_groups")

T = TypeVar("T")


class Share(NamedTuple):
    """One of `num_shards` processes, each of which has its part of the elements."""

    num_shards: int
    number: int

    def __str__(self) -> str:
        return f"shard({self.num_shards}, {self.number})"


class Resharding:
    """Deals to one share; `given` is how many things all have been given so far, so that all get as much."""

    def __init__(self, share: Share, epoch: tuple[Ticket, ...]) -> None:
        self.share = share
        self.epoch = epoch
        self.given = 0

    def at(self, turn: Ticket) -> Resharding:
        """Return how things inside of one turn of a repetition are dealt."""
        return Resharding(self.share, (*self.epoch, turn))

    def mine(self, things: Sequence[T]) -> Sequence[T]:
        """Return this share's part of some things."""
        first = (self.share.number - self.given) % self.share.num_shards
        self.given += len(things)
        return things[first :: self.share.num_shards]


def behind(position: Position, back: Iterable[Ticket]) -> Position:
    """Return the position that gives the elements with these tickets first."""
    tickets = [*back]
    return going_on(position, [ReplayedTickets(tickets, 0, len(tickets), END)])


def listed(position: Position) -> list[Position]:
    """Return a position that is a list, its input's first; the beginning and the end are the input's too."""
    return cast("list[Position]", position) if isinstance(position, list) else [position]


def named(position: Position, inner: str) -> dict[str, Any]:
    """Return a position that has names, its input's being `inner`; the beginning and the end are the input's too."""
    return cast("dict[str, Any]", position) if isinstance(position, dict) else {inner: position}


def resharded_open_groups(
    begun: Iterable[Sequence[Position]],
    resharding: Resharding,
    rest: Callable[[Sequence[Position], Resharding], Position],
) -> tuple[Position, list[Position]]:
    """Deal elements that something was being made of; `rest` deals those after them.

    Each of `begun` is the position of an input, followed by how far what was made of its first elements had come.
    """
    first: list[tuple[Ticket, Position]] = []
    others: list[Position] = []
    for position, *inners in begun:
        start = Start.of(position)
        first += zip(start.back, inners, strict=False)
        others.append(behind(start.position, start.back[len(inners) :]))
    mine = [(ticket, inner) for ticket, inner in resharding.mine(first) if inner != END]
    return behind(rest(others, resharding), [ticket for ticket, _ in mine]), [inner for _, inner in mine]
