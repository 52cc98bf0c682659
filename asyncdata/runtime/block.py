"""Block: what moves between stages, a list of items with their tickets; Demand: how many may come next."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias, final

from asyncdata.errors import StageError

__all__ = ("Block", "Blocks", "Demand", "Failure", "Ticket", "Tickets", "children")

Ticket: TypeAlias = Any
"""Where an element comes from: its ordinal in its source, a pair (parent's ticket, child's ticket) below flat_map and
interleave, or the tickets of all its members after batch."""

Tickets: TypeAlias = Sequence[Ticket]


@final
class Failure:
    """An exception in the place of the element that it befell."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def release(self) -> BaseException:
        """Return the exception and let go of it, so that no stage keeps what its traceback will hold alive."""
        error, self.error = self.error, DELIVERED
        return error

    def __repr__(self) -> str:
        return f"Failure({self.error!r})"


DELIVERED: Final = StageError("this failure was delivered already")


@final
class Block:
    """Consecutive items with one ticket each; an item may be a `Failure`, and then `failed` is true."""

    __slots__ = ("failed", "items", "tickets")

    def __init__(self, items: list[Any], tickets: Tickets, failed: bool = False) -> None:
        self.items = items
        self.tickets = tickets
        self.failed = failed

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"Block({self.items!r}, {self.tickets!r}{', failed=True' if self.failed else ''})"

    def part(self, start: int, stop: int) -> Block:
        """Return items `start` to `stop` as a block."""
        items = self.items[start:stop]
        return Block(items, self.tickets[start:stop], self.failed and has_failure(items))

    def pieces(self) -> Iterator[Block]:
        """Yield the block in pieces: whole if nothing failed, else runs of good items and each failure alone."""
        if not self.failed:
            yield self
            return
        start = 0
        for place, item in enumerate(self.items):
            if type(item) is Failure:
                if place > start:
                    yield Block(self.items[start:place], self.tickets[start:place])
                yield Block([item], self.tickets[place : place + 1], True)
                start = place + 1
        if start < len(self.items):
            yield Block(self.items[start:], self.tickets[start:])

    @staticmethod
    def join(blocks: Sequence[Block]) -> Block:
        """Return the items of all `blocks`, in order, as one block."""
        if len(blocks) == 1:
            return blocks[0]
        items = list(chain.from_iterable([block.items for block in blocks]))
        return Block(items, join_tickets([block.tickets for block in blocks]), any(b.failed for b in blocks))


def has_failure(items: list[Any]) -> bool:
    return Failure in set(map(type, items))


def join_tickets(parts: Sequence[Tickets]) -> Tickets:
    """Return the tickets of all parts: a range stays a range where the parts follow each other."""
    first = parts[0]
    if type(first) is range and first.step == 1:
        stop = first.stop
        for part in parts[1:]:
            if type(part) is not range or part.start != stop or part.step != 1:
                break
            stop = part.stop
        else:
            return range(first.start, stop)
    return list(chain.from_iterable(parts))


def children(parent: Ticket, tickets: Tickets) -> Tickets:
    """Return the tickets of elements that came from inside element `parent`."""
    return [(parent, ticket) for ticket in tickets]


class Demand:
    """How many items the next block may hold at most: set by its reader before each pull."""

    __slots__ = ("items",)

    def __init__(self, items: int = 1) -> None:
        self.items = items


Blocks: TypeAlias = AsyncGenerator[Block, None]
"""A running stage: an async generator of non-empty blocks of at most as many items as its `Demand` says."""
