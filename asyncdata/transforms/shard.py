"""shard: every n-th element; and how the rest of some shares is divided between another number of shares.

Elements have numbers, and those of share i are i, i + n and so on. When the number of shares changes, the undelivered
elements of the old shares get new numbers, in the same order, and are divided by these. So a position has the number of
the next element, and for each earlier sharding the number from which on each of its shares has undelivered elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

from asyncdata.elements.spec import TensorSpec
from asyncdata.errors import PlanError
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import (
    ELSEWHERE,
    Node,
    PlaceBelow,
    Unary,
    UnseekableError,
    another,
    check_count,
    nodes_of,
    scaled,
)
from asyncdata.graph.stages import Fold, Step
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.resharding import Resharding, Share
from asyncdata.runtime.tickets import (
    END,
    ExplicitTickets,
    FilteredTickets,
    Position,
    ReplayedTickets,
    SelectedTickets,
    Start,
    Ticket,
    Tickets,
    natural,
)
from asyncdata.system.rank import this_rank

__all__ = ("Shard", "is_padding")


@dataclass(frozen=True, eq=False)
class Shard(Unary):
    """Every `num_shards`-th element, the first being number `index`; dropping or padding makes shares of one size."""

    num_shards: int = field(metadata=ELSEWHERE)
    index: int = field(metadata=ELSEWHERE)
    drop_remainder: bool = False
    pad_remainder: bool = False

    @staticmethod
    def of(plan: Node, num_shards: int | None, index: int | None, drop: bool, pad: bool) -> Node:
        """Return the node for one share of a plan; the default is this process's."""
        if drop and pad:
            raise PlanError("shard() can drop the last elements or pad them, not both")
        if num_shards is None and index is None:
            num_shards, index = this_rank()
            if num_shards > 1:
                check_same_order(plan)
        shards = check_count("shard", "num_shards", num_shards, 1)
        if (number := check_count("shard", "index", index, 0)) >= shards:
            raise PlanError(f"shard(index=) must be less than num_shards={shards}, got {index}")
        if (own := plan.divided(Share(shards, number))) is not None and not (drop or pad):
            return own
        if shards > 1:
            check_same_elements(plan)
        return Shard(plan, shards, number, drop, pad)

    def stage(self) -> Fold:
        return Fold(lambda _: Sharder(self))

    @property
    def holds(self) -> int:
        return self.num_shards if self.drop_remainder or self.pad_remainder else 0  # until its row is complete

    @property
    def identity(self) -> str:
        return f"shard({', '.join(name for name in ('drop_remainder', 'pad_remainder') if getattr(self, name))})"

    @property
    def share(self) -> Share:
        return Share(self.num_shards, self.index)

    @property
    def random_access(self) -> bool:
        return self.input.random_access and not self.pad_remainder

    def address(self, places: Sequence[int]) -> Sequence[Ticket]:
        return self.input.address([self.index + place * self.num_shards for place in places])

    def place_below(self, position: Position) -> PlaceBelow | None:
        place = SharePlace.of(position)
        return None if place is None else PlaceBelow(place.input, place.tally.number, exactly=True)

    def seek(self, count: int) -> Position:
        if self.pad_remainder:
            raise UnseekableError(self.label())
        number = (count - 1) * self.num_shards + self.index + 1 if count else 0
        return [number, self.input.seek(number)]

    @property
    def cardinality(self) -> int:
        more = 0 if self.drop_remainder else self.num_shards - 1 - (0 if self.pad_remainder else self.index)
        return scaled(self.input.cardinality, lambda count: (count + more) // self.num_shards)

    @property
    def signature(self) -> Any:
        inner = self.input.signature
        return (inner, TensorSpec((), "bool")) if self.pad_remainder and inner is not None else inner

    def reshard(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        places = [SharePlace.of(at) for at in positions]
        lowest = min((place for place in places if place is not None), key=lambda place: place.tally.number)
        taken = [END if place is None else place.next_of(share, len(places)) for share, place in enumerate(places)]
        tally = ShardCount(
            resharding.given % resharding.share.num_shards,
            (*lowest.tally.earlier, EarlierSharding(lowest.tally.number, taken)),
        )
        return tally.position(lowest.input)

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        return self.padded(scope, want, tickets) if self.pad_remainder else super().fetch(scope, want, tickets)

    async def padded(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Yield elements, each with whether it is one, and not there to fill up."""
        inner, done = [ticket[1] if is_padding(ticket) else ticket for ticket in tickets], 0
        async with aclosing(self.input.open(scope, want, Start(END, inner))) as source:
            async for block in source:
                some = tickets[done : done + len(block)]
                done += len(some)
                valid = [not is_padding(ticket) for ticket in some]
                yield with_mask(Block(block.items, ReplayedTickets(some, 0, len(some), END), block.failed), valid)


def check_same_elements(plan: Node) -> None:
    """Raise `PlanError` if every process reads other elements, or in another order, so that numbers divide nothing."""
    for node in nodes_of(plan):
        if node.own_order:
            raise PlanError(
                f"shard() divides elements by their numbers, which differ between processes: {node.label()} "
                f"{node.own_order}"
            )


def check_same_order(plan: Node) -> None:
    """Raise `PlanError` if every process draws another order for itself: elements would be lost and repeated."""
    for node in nodes_of(plan):
        if node.chance is not None and not node.chance.is_repeatable and not node.preserves_tickets:
            raise PlanError(
                f"shard() divides elements among processes, which must all read them in the same order: give "
                f"{node.label()} a seed, the same in all processes (list_files shuffles unless shuffle=False)"
            )


def is_padding(ticket: Ticket) -> bool:
    """Return whether this is no element's own ticket, but of one that makes up for one that is missing."""
    return isinstance(ticket, tuple) and ticket[:1] == ("padding",)


def with_mask(block: Block, valid: Sequence[bool]) -> Block:
    """Return pairs of items and whether each is a real one; a failure stays one."""
    pairs: list[Any] = list(zip(block.items, valid, strict=True))
    if block.failed:
        pairs = [item if type(item) is Failure else pair for item, pair in zip(block.items, pairs, strict=True)]
    return Block(pairs, block.tickets, block.failed)


class EarlierSharding(NamedTuple):
    """An earlier sharding: the number of the next element in it, and the first that each share had not taken."""

    number: int
    left: Sequence[int | str]

    def took(self, number: int) -> bool:
        """Return whether a share took this element; a share that has ended took all of its own."""
        first = self.left[number % len(self.left)]
        return isinstance(first, str) or number < first

    def over(self) -> bool:
        """Return whether none of the coming elements was taken."""
        return all(not isinstance(first, str) and self.number >= first for first in self.left)


class ShardCount(NamedTuple):
    """How many elements have come in the present sharding, and in earlier ones that took some of the coming
    elements."""

    number: int = 0
    earlier: tuple[EarlierSharding, ...] = ()

    def passing(self, count: int) -> tuple[Sequence[int], ShardCount]:
        """Return the places of those of the next `count` elements that no share took, and the tally after all."""
        if not self.earlier:
            return range(count), ShardCount(self.number + count)
        left = range(count)
        earlier: list[EarlierSharding] = []
        for sharding in self.earlier:
            numbered = enumerate(left, sharding.number)
            earlier.append(sharding._replace(number=sharding.number + len(left)))
            left = [place for number, place in numbered if not sharding.took(number)]
        return left, ShardCount(
            self.number + len(left), tuple([sharding for sharding in earlier if not sharding.over()])
        )

    def position(self, inner: Position) -> Position:
        """Return it as a position, with the input's."""
        earlier = [[sharding.number, list(sharding.left)] for sharding in self.earlier]
        return [self.number, inner, earlier] if earlier else [self.number, inner]


class SharePlace(NamedTuple):
    """A position: the input's, and the numbers of the element there."""

    input: Position = None
    tally: ShardCount = ShardCount()

    @classmethod
    def of(cls, position: Position) -> SharePlace | None:
        """Return the decoded position; `None` at the end."""
        if position is None or position == END:
            return None if position else cls()
        number, inner, *rest = position
        earlier = [EarlierSharding(first, left) for first, left in (rest[0] if rest else ())]
        return cls(inner, ShardCount(natural(number), tuple(earlier)))

    def next_of(self, index: int, shares: int) -> int:
        """Return the number of the first element from here on that share `index` gets."""
        return self.tally.number + (index - self.tally.number) % shares


class Sharder(Step):
    """Gives one element in `num_shards`; if the last are dropped, only once there is one for every share."""

    def __init__(self, node: Shard) -> None:
        self.shares, self.index = node.num_shards, node.index
        self.pad, self.drop = node.pad_remainder, node.drop_remainder
        self.tally = ShardCount()
        self.waiting: list[Block] = []
        self.last = Block([])
        self.before_last = ShardCount()

    def resume(self, position: Position) -> Start:
        place = SharePlace.of(position) or SharePlace()
        self.tally = place.tally
        return Start.of(place.input)

    def need(self, want: int) -> int:
        row = self.shares - self.tally.number % self.shares
        own = (self.index - self.tally.number) % self.shares + 1
        if self.drop:  # the others' elements of the row too
            own = row if self.waiting else own + self.shares - self.index - 1
        return own + (want - 1) * self.shares

    def feed(self, block: Block) -> Block:
        before = self.tally
        left, self.tally = before.passing(len(block))
        own = places = left[(self.index - before.number) % self.shares :: self.shares]
        if lost := block.source_failures(len(block)):  # every share raises them
            places = sorted({*own, *lost})
        mine = block.at(places, ShardTickets(block.tickets, places, before))
        if self.drop:
            return self.complete_rows(mine, len(places) - places.index(own[-1]) if own else 0)
        return self.masked(block, mine, before) if self.pad else mine

    def complete_rows(self, mine: Block, last: int) -> Block:
        """Return elements for which every share has one. This share's last element is `last` items before the end; 0 if
        there is none. While it waits for the other shares, later failures of sources wait too."""
        if self.tally.number % self.shares <= self.index:  # no element waits
            found, self.waiting = [*self.waiting, mine], []
            return Block.join(found)
        if not last:
            self.waiting += [mine] if len(mine) else []
            return Block([])
        found = Block.join([*self.waiting, mine])
        ready = len(found) - last
        self.waiting = [
            mine.slice(len(mine) - last, len(mine))
        ]  # a part of `found` would hold earlier blocks in memory
        return found.slice(0, ready)

    def masked(self, block: Block, mine: Block, before: ShardCount) -> Block:
        """Store an element that may pad a missing one, and mark these as real."""
        _, self.before_last = before.passing(len(block) - 1)
        last = block.slice(len(block) - 1, len(block))
        self.last = Block([another(last.items[0])], last.tickets, True) if last.failed else last
        return with_mask(mine, [True] * len(mine))

    def flush(self) -> Iterator[Block]:
        for block in self.waiting:
            if lost := block.source_failures(len(block)):
                yield block.at(lost, FilteredTickets(block.tickets, lost))
        missing = self.pad and 0 < self.tally.number % self.shares <= self.index
        if (
            missing and len(self.last) and not self.last.source_failures(1)
        ):  # which was raised, perhaps before the start
            last, before = self.last, self.before_last

            def position(count: int) -> Position:
                return END if count else before.position(last.tickets.at(0))  # to be read again: it makes up

            tickets = ExplicitTickets([("padding", last.tickets[0])], position)
            yield with_mask(Block(last.items, tickets, last.failed), [False])


@final
class ShardTickets(SelectedTickets):
    """The elements of a block that are one share's, at some places, and the tally before the block."""

    __slots__ = ("before",)

    def __init__(self, base: Tickets, places: Sequence[int], before: ShardCount) -> None:
        super().__init__(base, places)
        self.before = before

    def run_from(self, ordinal: int) -> bool:
        every = len(self.places) == len(self.base)
        return every and self.base.run_from(ordinal)

    def at(self, count: int) -> Position:
        come = self.places[count - 1] + 1 if count else 0
        return self.before.passing(come)[1].position(self.base.at(come))
