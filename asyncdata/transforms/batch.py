"""batch and unbatch: consecutive elements stacked into one, and taken apart again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple, final

from asyncdata.columns import Columns, divided
from asyncdata.errors import PlanError, StructureError
from asyncdata.plan import Node, Unary, another, regrouped, repeated_ones, scaled
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.dealing import Deal, dealt_begun, listed
from asyncdata.runtime.executors import noted
from asyncdata.runtime.scope import Scope
from asyncdata.runtime.stage import Fold, Step
from asyncdata.runtime.tickets import (
    END,
    NOTHING,
    Children,
    Given,
    Listed,
    Ordinals,
    Position,
    Start,
    Ticket,
    Tickets,
    going_on,
    natural,
    plain,
    reopening,
)
from asyncdata.structure import TensorSpec, map_leaves, prefixed, stack, unprefixed, unstack

__all__ = ("Batch", "Batcher", "Passed", "Spot", "Unbatch", "alone", "remade")

FEW: Final = 32
"""Fewer rows of one array than this are stacked quicker as elements."""

ALONE: Final = "alone"
"""Marks the ticket of an element that failed and is in no batch."""


@dataclass(frozen=True, eq=False)
class Batch(Unary):
    """Every `size` consecutive elements as one, their leaves stacked along a new first axis."""

    size: int
    drop_remainder: bool = False

    def stage(self) -> Fold:
        return Fold(lambda _: Batcher(self))

    @property
    def kind(self) -> str:
        """What users call it."""
        return "batch"

    @property
    def stacks(self) -> bool:
        """Whether it joins elements as they are, which for arrays is to join the arrays."""
        return True

    def join(self, items: list[Any]) -> Any:
        """Return one element made of these."""
        return stack(items)

    def made(self, items: list[Any], tickets: Tickets, at: int) -> Any:
        """Return a batch, of elements whose tickets begin at `at`, or the failure in its place."""
        try:
            return self.join(items)
        except (StructureError, ValueError, TypeError, MemoryError) as error:
            return noted(error, f"{self.kind}({len(items)})", tickets.part(at, at + len(items)))

    def whole(self, block: Block) -> Any:
        """Return a batch of all elements of a block, or the failure in its place; of columns without the elements."""
        if not block.columns or not self.stacks:
            return self.made(block.items, block.tickets, 0)
        return self.joined(block.columns, block.tickets, 0, len(block))

    def joined(self, columns: Sequence[Columns], tickets: Tickets, start: int, stop: int) -> Any:
        """Return a batch of columns, whose elements have the tickets from `start` to `stop`, or the failure."""
        try:
            return Columns.stacked(columns)
        except (StructureError, MemoryError) as error:
            return noted(error, f"{self.kind}({stop - start})", tickets.part(start, stop))

    @property
    def cardinality(self) -> int:
        whole = 0 if self.drop_remainder else self.size - 1
        return scaled(self.input.cardinality, lambda count: (count + whole) // self.size)

    @property
    def signature(self) -> Any:
        return prefixed(self.input.signature, self.size if self.drop_remainder else None)

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        return remade(self.input, scope, tickets, self.whole)

    def seek(self, count: int) -> Position:
        return [self.input.seek(count * self.size)]

    def deal(self, positions: Sequence[Position], deal: Deal) -> Position:
        return [self.input.dealt([listed(at)[0] for at in positions], deal)]


class Batcher(Step):
    """Collects elements. A failure passes at once and leaves the batch under construction as it is."""

    def __init__(self, node: Batch) -> None:
        self.size = node.size
        self.drop_remainder = node.drop_remainder
        self.node = node
        self.held: list[Block] = []
        self.count = 0
        self.overtaken = 0  # of what is held: failures that came later have passed these
        self.last: Tickets = NOTHING

    def resume(self, position: Position) -> Start:
        return Start.of(position[0])

    def need(self, want: int) -> int:
        return want * self.size - self.count

    def feed(self, block: Block) -> Block:
        before = self.spot(block.tickets, 0)
        self.last = block.tickets
        if not block.failed:
            self.hold(block)
            return self.cut(before) if self.count >= self.size else Block([])
        out: list[Block] = []
        for piece in block.pieces():
            if piece.failed:
                self.overtaken = self.count
                after = self.spot(piece.tickets, 1)
                out.append(Block(piece.items, Passed(alone(piece.tickets[0]), before, after), True))
                continue
            self.hold(piece)
            if self.count >= self.size:
                out.append(self.cut(before))
        return Block.join(out) if out else Block([])

    def hold(self, block: Block) -> None:
        """Keep elements for the batch under construction."""
        self.held.append(block)
        self.count += len(block)

    def spot(self, tickets: Tickets, done: int) -> Spot:
        """Return where things stand after `done` of some elements."""
        return Spot(tickets, done, [piece.tickets for piece in self.held], self.overtaken > 0)

    def cut(self, before: Spot) -> Block:
        """Return every full batch that is held."""
        whole, stops = Block.join(self.held), self.stops()
        end, columns, tickets = stops[-1], whole.columns, whole.tickets
        spans = zip(chain((0,), stops), stops, strict=False)
        if not columns or not self.node.stacks or (end < FEW * len(stops) and columns[0].bare):
            made, items = self.node.made, whole.items
            batches = [made(items[start:stop], tickets, start) for start, stop in spans]
        elif len(stops) == 1 and end == self.count:
            batches = [self.node.joined(columns, tickets, 0, end)]
        else:
            joined, parts = self.node.joined, divided(columns, stops)
            batches = [joined(part, tickets, *span) for part, span in zip(parts, spans, strict=False)]
        self.count -= end
        self.overtaken = max(0, self.overtaken - end)
        last = self.held[-1]  # which made the first of these batches full: a part of `whole` would keep all before it
        self.held = [last.part(len(last) - self.count, len(last))] if self.count else []
        return Block(batches, Batches(whole.tickets, stops, before), Failure in set(map(type, batches)))

    def stops(self) -> Sequence[int]:
        """Return where in what is held each full batch ends."""
        return range(self.size, self.count + 1, self.size)

    def flush(self) -> Iterator[Block]:
        if self.held and not self.drop_remainder:
            whole = Block.join(self.held)
            batch = self.node.whole(whole)
            before, after = self.spot(self.last, len(self.last)), Spot(self.last, len(self.last))
            yield Block([batch], Passed(whole.tickets, before, after), type(batch) is Failure)


class Spot(NamedTuple):
    """A position in the input: after `done` of some elements, with others held that were read before."""

    tickets: Tickets
    done: int
    held: Sequence[Tickets] = ()
    overtaken: bool = False

    def position(self) -> Position:
        """Return it as the position to go on at: a list, as what comes first are members, not batches.

        That is before the first element that is held, unless failures behind it have been delivered.
        """
        if self.held and not self.overtaken:
            return [self.held[0].at(0)]
        return [going_on(self.tickets.at(self.done), self.held)]


@final
class Batches(Tickets):
    """The tickets of full batches, cut from elements that follow each other at `stops`.

    `before` is where things stood before.
    """

    __slots__ = ("before", "stops", "whole")

    def __init__(self, whole: Tickets, stops: Sequence[int], before: Spot) -> None:
        self.whole = whole
        self.stops = stops
        self.before = before

    def __len__(self) -> int:
        return len(self.stops)

    def __getitem__(self, index: int) -> Ticket:
        return self.whole.part(self.stops[index - 1] if index else 0, self.stops[index])

    def at(self, count: int) -> Position:
        return Spot(self.whole, self.stops[count - 1]).position() if count else self.before.position()


@final
class Passed(Tickets):
    """The ticket of one thing that went out, a failure or the last batch, and where things stood before and after."""

    __slots__ = ("after", "before", "ticket")

    def __init__(self, ticket: Ticket, before: Spot, after: Spot) -> None:
        self.ticket = ticket
        self.before = before
        self.after = after

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Ticket:
        return self.ticket

    def at(self, count: int) -> Position:
        return (self.after if count else self.before).position()


def alone(ticket: Ticket) -> Ticket:
    """Return the ticket of an element that passes by itself, which may itself have members, a batch that failed, or
    have passed by itself before."""
    return (ALONE, ticket) if isinstance(ticket, Tickets) or is_alone(ticket) else ticket


def is_alone(ticket: Ticket) -> bool:
    return isinstance(ticket, tuple) and ticket[:1] == (ALONE,)


def members_of(ticket: Ticket) -> Sequence[Ticket]:
    """Return the tickets of the elements that went into what has this ticket."""
    if isinstance(ticket, Tickets):
        return [*ticket]
    return [ticket[1]] if is_alone(ticket) else [ticket]


async def remade(node: Node, scope: Scope, tickets: Sequence[Ticket], make: Callable[[Block], Any]) -> Blocks:
    """Yield what `make` makes of the members of each of these, elements of `node`; what has none passes by itself."""
    members = [members_of(ticket) for ticket in tickets]
    inner = Demand()
    async with aclosing(node.open(scope, inner, Start(END, [*chain.from_iterable(members)]))) as source:
        for place, one in enumerate(members):
            found = await exactly(source, inner, len(one))
            if found is None:
                return
            item = make(found) if isinstance(tickets[place], Tickets) else found.items[0]
            yield Block([item], Given(tickets, place, place + 1, END), type(item) is Failure)


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


@dataclass(frozen=True, eq=False)
class Unbatch(Unary):
    """The elements that the leaves of each element hold along their first axis."""

    alone: bool = field(default=False, repr=False)
    """Whether a batch is all that reads them, as in `rebatch`: it may hand on the arrays of a batch that came in."""

    @staticmethod
    def of(plan: Node, method: str = "unbatch", alone: bool = False) -> Unbatch:
        """Return the node; `PlanError` if it is known already that elements have no first axis."""
        map_leaves(partial(check_axis, method), plan.signature)
        return Unbatch(plan, alone)

    async def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Take the elements apart again."""
        parents = {plain(parent): parent for parent, _ in tickets}
        found: dict[Ticket, Block] = {}
        async with aclosing(self.input.open(scope, Demand(), Start(END, [*parents.values()]))) as source:
            async for block in source:
                found[plain(block.tickets[0])] = Unbatcher().feed(block)
        names = [(plain(parent), row or 0) for parent, row in tickets]
        often = repeated_ones(names)
        for place, (parent, row) in enumerate(names):
            if (rows := found.get(parent)) is None or row >= len(rows):
                return
            item = another(rows.items[row]) if names[place] in often else rows.items[row]
            yield Block([item], Given(tickets, place, place + 1, END), type(item) is Failure)

    def stage(self) -> Fold:
        rows = self.input.size if isinstance(self.input, Batch) else unprefixed(self.input.signature)[0]
        owned = self.alone and isinstance(self.input, Batch)  # which nobody but this step has seen
        return Fold(lambda _: Unbatcher(self.input.in_order and not self.input.shared, rows, owned))

    def deal(self, positions: Sequence[Position], deal: Deal) -> Position:
        outer, rows = dealt_begun(map(listed, positions), deal, self.input.dealt)
        return [outer, *rows]

    @property
    def signature(self) -> Any:
        return unprefixed(self.input.signature)[1]

    @property
    def cardinality(self) -> int:
        rows = unprefixed(self.input.signature)[0]
        if rows is not None:
            return scaled(self.input.cardinality, lambda count: count * rows)
        return regrouped(self.input.cardinality)


def check_axis(method: str, spec: TensorSpec | None, where: str) -> None:
    """Raise if a leaf is known to be a scalar; of dtype `object` it may still be a list."""
    if spec is not None and spec.shape == () and spec.dtype != object:
        raise PlanError(f"{method}(): {f'leaf {where}' if where else 'each element'} is a scalar and has no first axis")


class Unbatcher(Step):
    """Takes elements apart: one at a time, unless it is known how many rows they have at most.

    So no more is read than is wanted.
    """

    def __init__(self, by_place: bool = True, most_rows: int | None = None, owned: bool = False) -> None:
        self.by_place = by_place
        self.most_rows = most_rows
        self.owned = owned
        self.skips: Sequence[int] = ()

    def resume(self, position: Position) -> Start:
        outer, *skips = position
        self.skips = [*map(natural, skips)]
        return Start.of(outer)

    def need(self, want: int) -> int:
        return max(1, want // self.most_rows) if self.most_rows else 1

    def feed(self, block: Block) -> Block:
        if len(block) == 1:
            return self.rows(block)
        return Block.join([self.rows(block.part(place, place + 1)) for place in range(len(block))])

    def rows(self, block: Block) -> Block:
        """Return the rows of a block of one element."""
        skip, self.skips = self.skips[0] if self.skips else 0, self.skips[1:]
        if block.failed:
            return self.failure(block, block.items[0], skip)
        try:
            columns = Columns.of(block.items[0], self.owned)
            items = unstack(block.items[0]) if columns is None else []
        except StructureError as error:
            return self.failure(block, noted(error, "unbatch()", block.tickets[0]), skip)
        count, element, skips = len(items) if columns is None else len(columns), block.tickets, self.skips
        rows = Children(element[0], Ordinals(0, count), lambda row: self.after(element, row, count, skips))
        out = Block(items, rows) if columns is None else Block.of_columns([columns], rows)
        return out.part(skip, count) if skip else out

    def failure(self, block: Block, failure: Failure, skip: int) -> Block:
        """Return the failure of a whole element in its place."""
        skips = self.skips
        place = Children(block.tickets[0], NO_ROW, lambda row: self.after(block.tickets, row, 1, skips))
        return Block([failure], place, True).part(skip, 1)

    def after(self, element: Tickets, row: int, rows: int, skips: Sequence[int]) -> Position:
        """Return the position after so many rows of one element; `skips` is for those that follow."""
        return [element.at(1), *skips] if row == rows else [reopening(element, self.by_place), row, *skips]


NO_ROW = Listed([None], lambda count: count)
