"""unbatch: elements split along their first axis."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, final

from asyncdata.elements.columns import ColumnBatch
from asyncdata.elements.spec import TensorSpec
from asyncdata.elements.structure import leaf, map_leaves, unprefixed, unstack
from asyncdata.errors import PlanError
from asyncdata.executors.function_call import noted
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import PHYSICAL, Node, Unary, another, regrouped, repeated_ones, scaled
from asyncdata.graph.stages import Fold, Step
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.resharding import Resharding, listed, resharded_open_groups
from asyncdata.runtime.tickets import (
    END,
    ChildTickets,
    ExplicitTickets,
    Ordinals,
    Position,
    ReplayedTickets,
    Start,
    Ticket,
    Tickets,
    natural,
    plain,
    replaying_first,
)
from asyncdata.transforms.batch import Batch
from asyncdata.transforms.prefetch import Prefetch
from asyncdata.transforms.shard import Shard

__all__ = ("Unbatch",)


@dataclass(frozen=True, eq=False)
class Unbatch(Unary):
    """The elements that the leaves of each element hold along their first axis."""

    alone: bool = field(default=False, repr=False, metadata=PHYSICAL)
    """Whether a batch is all that reads them, as in `rebatch`: it may hand on the arrays of a batch that came in."""

    splits_elements = True

    @staticmethod
    def of(plan: Node, method: str = "unbatch", alone: bool = False) -> Unbatch:
        """Return the node; `PlanError` if it is known already that elements have no first axis, or of several sizes."""
        map_leaves(partial(check_axis, method), plan.signature)
        check_rows(method, plan.signature)
        return Unbatch(plan, alone)

    @property
    def holds(self) -> int:
        return 1  # the one whose rows are being given

    async def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Split the elements again."""
        parents = {plain(parent): parent for parent, _ in tickets}
        found: dict[Ticket, Block] = {}
        async with aclosing(self.input.open(scope, Demand(), Start(END, [*parents.values()]))) as source:
            async for block in source:
                found[plain(block.tickets[0])] = Unbatcher(self.method).feed(block)
        names = [(plain(parent), row or 0) for parent, row in tickets]
        often = repeated_ones(names)
        for place, (parent, row) in enumerate(names):
            if (rows := found.get(parent)) is None or row >= len(rows):
                return
            item = another(rows.items[row]) if names[place] in often else rows.items[row]
            yield Block([item], ReplayedTickets(tickets, place, place + 1, END), type(item) is Failure)

    @property
    def method(self) -> str:
        """The method that the user called, for messages."""
        return "rebatch()" if self.alone else "unbatch()"

    def stage(self) -> Fold:
        rows = self.input.size if isinstance(self.input, Batch) else unprefixed(self.input.signature)[0]
        by_place, owned = self.input.in_order and not self.input.shared, self.owned
        return Fold(lambda _: Unbatcher(self.method, by_place, rows, owned))

    @property
    def owned(self) -> bool:
        """Whether no other step sees the elements of the input, as with batches."""
        source = self.input
        while isinstance(source, Prefetch):
            source = source.input
        return self.alone and isinstance(source, Batch) and source.copies

    def reshard(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        outer, rows = resharded_open_groups(map(listed, positions), resharding, self.input.resharded)
        return [outer, *rows]

    @property
    def signature(self) -> Any:
        return unprefixed(self.input.signature)[1]

    def batched(self, read: float) -> float:
        return read

    @property
    def cardinality(self) -> int:
        rows = rows_of(self.input)
        if rows is not None:
            return scaled(self.input.cardinality, lambda count: count * rows)
        return regrouped(self.input.cardinality)


def rows_of(node: Node) -> int | None:
    """Return how many rows each element has if none fails, `None` if that is not known.

    A batch has a known size, even if its elements are unknown, and also after steps that pass it on unchanged.
    """
    while isinstance(node, Unary) and hands_on(node):
        node = node.input
    if isinstance(node, Batch) and node.row_count is not None:
        return node.row_count
    return unprefixed(node.signature)[0]


def hands_on(node: Unary) -> bool:
    """Return whether those elements that come out do so as they are."""
    return type(node).signature is Unary.signature or (isinstance(node, Shard) and not node.pad_remainder)


def check_axis(method: str, spec: TensorSpec | None, where: str) -> None:
    """Raise if a leaf is known to be a scalar; of dtype `object` it may still be a list."""
    if spec is not None and spec.shape == () and spec.dtype != object:
        raise PlanError(f"{method}(): {f'leaf {where}' if where else 'each element'} is a scalar and has no first axis")


def check_rows(method: str, signature: Any) -> None:
    """Raise if leaves are known to have first axes of different sizes."""
    rows: dict[str, int] = {}

    def note(spec: TensorSpec | None, where: str) -> None:
        if spec is not None and spec.shape and spec.shape[0] is not None:
            rows[where] = spec.shape[0]

    map_leaves(note, signature)
    first = next(iter(rows), "")
    for where, size in rows.items():
        if size != rows[first]:
            raise PlanError(f"{method}(): {leaf(where)} has {size} rows, {leaf(first)} has {rows[first]}")


class Unbatcher(Step):
    """Splits elements: one at a time, unless their maximum number of rows is known.

    So no more is read than requested.
    """

    def __init__(self, name: str, by_place: bool = True, most_rows: int | None = None, owned: bool = False) -> None:
        self.name = name
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
        found = self.all_rows(block)
        return Block.join([self.rows(block.slice(at, at + 1)) for at in range(len(block))]) if found is None else found

    def all_rows(self, block: Block) -> Block | None:
        """Return the rows of all elements at once, if none failed and all are in arrays; else `None`."""
        if self.skips or block.failed:
            return None
        try:
            columns = [self.columns(block, place) for place in range(len(block))]
        except Exception:  # also errors of an element's own methods; found one by one
            return None
        found = [part for part in columns if part is not None]
        if len(found) < len(columns):
            return None
        return Block.of_columns(found, RowTickets(block.tickets, [*accumulate(map(len, found))], self.by_place))

    def rows(self, block: Block) -> Block:
        """Return the rows of a block of one element."""
        skip, self.skips = self.skips[0] if self.skips else 0, self.skips[1:]
        if block.failed:
            return self.failure(block, block.items[0], skip)
        try:
            columns = self.columns(block, 0)
            items = unstack(block.items[0]) if columns is None else []
        except Exception as error:  # also errors of an element's own methods
            return self.failure(block, noted(error, self.name, block.tickets[0]), skip)
        count, element, skips = len(items) if columns is None else len(columns), block.tickets, self.skips
        rows = ChildTickets(element[0], Ordinals(0, count), lambda row: self.after(element, row, count, skips))
        out = Block(items, rows) if columns is None else Block.of_columns([columns], rows)
        return out.slice(skip, count) if skip else out

    def columns(self, block: Block, place: int) -> ColumnBatch | None:
        """Return an element as columns, if possible: its own arrays, if no other step sees it."""
        return ColumnBatch.of(block.items[place], self.owned)

    def failure(self, block: Block, failure: Failure, skip: int) -> Block:
        """Return the failure of an entire element in its place."""
        skips = self.skips
        place = ChildTickets(block.tickets[0], NO_ROW, lambda row: self.after(block.tickets, row, 1, skips))
        return Block([failure], place, True).slice(skip, 1)

    def after(self, element: Tickets, row: int, rows: int, skips: Sequence[int]) -> Position:
        """Return the position after so many rows of one element; `skips` is for those that follow."""
        return [*after(element, row, rows, self.by_place), *skips]


NO_ROW = ExplicitTickets([None], lambda count: count)


@final
class RowTickets(Tickets):
    """The rows of elements that follow each other, those of each up to one of `stops`."""

    __slots__ = ("base", "by_place", "stops")

    def __init__(self, base: Tickets, stops: Sequence[int], by_place: bool) -> None:
        self.base = base
        self.stops = stops
        self.by_place = by_place

    def __len__(self) -> int:
        return self.stops[-1]

    def begin(self, place: int) -> int:
        """Return how many rows come before those of an element."""
        return self.stops[place - 1] if place else 0

    def __getitem__(self, index: int) -> Ticket:
        place = bisect_left(self.stops, index + 1)
        return (self.base[place], index - self.begin(place))

    def at(self, count: int) -> Position:
        place = bisect_left(self.stops, count)
        begin = self.begin(place)
        return after(self.base.slice(place, place + 1), count - begin, self.stops[place] - begin, self.by_place)


def after(element: Tickets, row: int, rows: int, by_place: bool) -> Position:
    """Return the position after so many of the rows of one element."""
    return [element.at(1)] if row == rows else [replaying_first(element, by_place), row]
