"""Block: a list of items with their tickets, which stages pass on; Demand: how many items the next block may hold."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from itertools import chain
from typing import Any, Final, NoReturn, TypeAlias, final

from asyncdata.elements.columns import ColumnBatch
from asyncdata.elements.structure import nbytes
from asyncdata.errors import StageError
from asyncdata.runtime.tickets import NOTHING, JoinedTickets, Tickets, TicketsAfterSkip

__all__ = ("DELIVERED", "Block", "Blocks", "Demand", "Failure", "LeftOut", "fail", "is_left_out")


@final
class Failure:
    """An exception in the place of an element; `of_source` if it replaces all remaining elements of a source.

    Steps that drop elements, such as `skip`, also drop failed ones, but never the failure of a source.
    """

    __slots__ = ("error", "of_source")

    def __init__(self, error: BaseException, of_source: bool = False) -> None:
        self.error = error
        self.of_source = of_source

    def release(self) -> BaseException:
        """Return the exception and release it, so that no stage keeps the objects of its traceback alive."""
        error, self.error = self.error, DELIVERED
        return error

    def __repr__(self) -> str:
        return f"Failure({self.error!r}{', of_source=True' if self.of_source else ''})"


class LeftOut(Exception):  # noqa: N818 - never raised
    """The error of what `exclude` leaves out, where its place counts; users never see it."""


def is_left_out(item: Any) -> bool:
    """Return whether an item is the place of something that was left out."""
    return type(item) is Failure and type(item.error) is LeftOut


DELIVERED: Final = StageError("this failure was delivered already")


def fail(error: BaseException) -> NoReturn:
    """Raise `error` without leaving a cycle between its traceback and this frame."""
    try:
        raise error
    finally:
        del error


@final
class Block:
    """Consecutive items with one ticket each, `count` in number; an item may be a `Failure`, and then `failed` is true.

    If items are in columns, `columns` holds these, and `items` are made when they are first read.
    """

    __slots__ = ("columns", "count", "failed", "items", "tickets")

    items: list[Any]

    def __init__(self, items: list[Any], tickets: Tickets = NOTHING, failed: bool = False) -> None:
        self.items = items
        self.count = len(items)
        self.tickets = tickets
        self.failed = failed
        self.columns: Sequence[ColumnBatch] = ()

    @classmethod
    def of_columns(cls, columns: Sequence[ColumnBatch], tickets: Tickets) -> Block:
        """Return a block of items in columns, which consist of consecutive parts."""
        block = cls.__new__(cls)
        block.columns = columns
        block.count = len(tickets)
        block.tickets = tickets
        block.failed = False
        return block

    def __getattr__(self, name: str) -> Any:
        if name != "items":  # `items` has no value yet
            raise AttributeError(name)
        parts = [part.elements() for part in self.columns]
        self.items = parts[0] if len(parts) == 1 else list(chain.from_iterable(parts))
        return self.items

    def __len__(self) -> int:
        return self.count

    def ticketed(self, tickets: Tickets) -> Block:
        """Return the same items with other tickets."""
        if self.columns:
            return Block.of_columns(self.columns, tickets)
        return Block(self.items, tickets, self.failed)

    @property
    def weight(self) -> int:
        """The approximate size of an item in bytes."""
        if self.columns:
            return self.columns[0].weight
        first = self.items[0]
        return len(first) * first.weight if type(first) is Block and len(first) else nbytes(first)

    def __repr__(self) -> str:
        return f"Block({self.items!r}, {self.tickets!r}{', failed=True' if self.failed else ''})"

    def slice(self, start: int, stop: int) -> Block:
        """Return items `start` to `stop` as a block: this one if these are all."""
        if start == 0 and stop >= self.count:
            return self
        if self.columns:
            return Block.of_columns(cut(self.columns, start, stop), self.tickets.slice(start, stop))
        items = self.items[start:stop]
        return Block(items, self.tickets.slice(start, stop), self.failed and has_failure(items))

    def at(self, places: Sequence[int], tickets: Tickets) -> Block:
        """Return the items at some indices as a block with other tickets."""
        if len(self.columns) == 1 and len(places):
            return Block.of_columns([self.columns[0].at(places)], tickets)
        if isinstance(places, range):
            items = self.items[places.start : places.stop : places.step]
        else:
            items = [self.items[place] for place in places]
        return Block(items, tickets, self.failed and has_failure(items))

    def pieces(self) -> Iterator[Block]:
        """Yield the block in pieces: undivided if nothing failed, else runs of good items and single failures."""
        return self.apart() if self.failed else iter((self,))

    def apart(self) -> Iterator[Block]:
        start = 0
        for place, item in enumerate(self.items):
            if type(item) is Failure:
                if place > start:
                    yield Block(self.items[start:place], self.tickets.slice(start, place))
                yield Block([item], self.tickets.slice(place, place + 1), True)
                start = place + 1
        if start < len(self.items):
            yield Block(self.items[start:], self.tickets.slice(start, len(self)))

    def source_failures(self, stop: int) -> list[int]:
        """Return the indices of failures of sources among the first `stop` items."""
        if not self.failed:
            return []
        return [place for place, item in enumerate(self.items[:stop]) if type(item) is Failure and item.of_source]

    def good_places(self) -> list[int]:
        """Return the indices of the items that have not failed."""
        return [place for place, item in enumerate(self.items) if type(item) is not Failure]

    def after_skip(self, skip: int, step: bool = False) -> Block:
        """Return the block without its first `skip` items; failures of sources stay. See `TicketsAfterSkip`."""
        start = min(skip, len(self))
        stay = self.source_failures(start)
        if not stay:
            return self.slice(start, len(self)) if start else self
        places = [*stay, *range(start, len(self))]
        return self.at(places, TicketsAfterSkip(self.tickets, places, skip, step))

    @staticmethod
    def join(blocks: Sequence[Block]) -> Block:
        """Return the items of all `blocks`, in order, as one block."""
        if len(blocks) == 1:
            return blocks[0]
        tickets = JoinedTickets.of([block.tickets for block in blocks])
        columns = [block.columns for block in blocks]
        if all(columns):
            return Block.of_columns([*chain.from_iterable(columns)], tickets)
        items, failed = list[Any](), False
        for block in blocks:
            items += block.items
            failed |= block.failed
        return Block(items, tickets, failed)


def cut(columns: Sequence[ColumnBatch], start: int, stop: int) -> list[ColumnBatch]:
    """Return items `start` to `stop` of columns in consecutive parts."""
    if len(columns) == 1:
        return [columns[0][start:stop]]
    parts: list[ColumnBatch] = []
    for part in columns:
        rows = len(part)
        begin, end = max(0, start), min(stop, rows)
        if begin < end:
            parts.append(part.rows(begin, end))
        start, stop = start - rows, stop - rows
    return parts


def has_failure(items: list[Any]) -> bool:
    return Failure in set(map(type, items))


MOST_AHEAD: Final = (256, 1 << 18)
"""The most items, and bytes, that a step asks for because nothing came of fewer: a pull costs little for each then."""


class Demand:
    """The most items that the next block may hold: the reader sets it before each pull.

    Of fewer than `least` the reader makes nothing, unless one has failed or no more come: they may come together. A
    stage that has waited says so in `waited`: other tasks of the loop have run meanwhile.

    A step of whose input nothing came may ask for several `times` as much if `ahead`: if the consumer's buffer keeps
    what comes too early.
    """

    __slots__ = ("ahead", "items", "least", "times", "waited")

    def __init__(self, items: int = 1, ahead: bool = False) -> None:
        self.items = items
        self.least = 1
        self.ahead = ahead
        self.waited = False
        self.times = 1

    def ask(self, needed: int) -> None:
        """Ask for several times the number of items that are needed, or for that number if it is large."""
        self.items = needed if self.times == 1 else max(needed, min(needed * self.times, MOST_AHEAD[0]))

    def came(self, block: Block, made: int) -> None:
        """Ask for more next time if nothing was `made` of a block as large as asked for, else for fewer again."""
        if made:
            self.times = max(1, self.times // 2)
        elif self.ahead and len(block) == self.items < MOST_AHEAD[0] and 2 * self.items * block.weight <= MOST_AHEAD[1]:
            self.times *= 2


Blocks: TypeAlias = AsyncGenerator[Block, None]
"""A running stage: an async generator of non-empty blocks of at most as many items as its `Demand`."""
