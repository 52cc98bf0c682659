"""window: consecutive elements as a dataset of their own, which may overlap with the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

from asyncdata.elements.isolation import isolated
from asyncdata.elements.structure import LEAVES, endless, open_level
from asyncdata.errors import StructureError
from asyncdata.executors.function_call import noted
from asyncdata.executors.process.exceptions import copied_failure
from asyncdata.executors.scope import Scope
from asyncdata.graph.members import remade
from asyncdata.graph.node import REPLACEABLE, Node, Unary, scaled
from asyncdata.graph.stages import Fold, Produce, Step
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.tickets import (
    END,
    ExplicitTickets,
    FilteredTickets,
    Ordinals,
    Position,
    ReplayedTickets,
    Start,
    Ticket,
    Tickets,
    WrappedTickets,
    natural,
    replaying,
)
from asyncdata.sources.random_access import IndexedSource

__all__ = ("Make", "Members", "Window")

Make = Callable[[Node], Any]
"""Makes a `Dataset` from a plan, for users."""


class Frame(NamedTuple):
    """Which elements a window has, counted from its first one, and how far it moves."""

    size: int
    shift: int
    stride: int

    @property
    def span(self) -> int:
        """How many elements there are from a window's first to its last."""
        return (self.size - 1) * self.stride + 1


@dataclass(frozen=True, eq=False)
class Window(Unary):
    """Every `size` elements, `stride` apart, as a dataset; the next window starts `shift` elements later."""

    size: int
    shift: int
    make: Make = field(repr=False, metadata=REPLACEABLE)
    stride: int = 1
    drop_remainder: bool = False

    retains_elements = True

    @property
    def holds(self) -> int:
        return self.frame.span

    @property
    def frame(self) -> Frame:
        """Size, shift and stride."""
        return Frame(self.size, self.shift, self.stride)

    def stage(self) -> Fold:
        return Fold(lambda _: Windower(self))

    @property
    def cardinality(self) -> int:
        last = self.frame.span - 1 if self.drop_remainder else 0  # elements at the end at which no window begins
        return scaled(self.input.cardinality, lambda count: max(0, count - last + self.shift - 1) // self.shift)

    @property
    def signature(self) -> None:
        return None

    def seek(self, count: int) -> Position:
        return [self.input.seek(count * self.shift), 0]

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        def window(members: Block) -> Any:
            return self.window(members.items, [members.tickets], 0)

        return remade(self.input, scope, tickets, window, in_batches=True)

    def window(self, members: Sequence[Any], tickets: Tickets | Sequence[Ticket], index: int) -> Any:
        """Return a window of these elements, or the failure in its place, with ticket number `index`."""
        try:
            return open_members(members, self.make)
        except Exception as error:  # also errors of an element's own methods
            return noted(error, self.label(), tickets[index])


class Windower(Step):
    """Holds the elements from the first of the next window on. One that failed is an element of its windows.

    A failure of a source is in no window, and goes out at once.
    """

    def __init__(self, node: Window) -> None:
        self.node = node
        self.frame = node.frame
        self.by_place = node.input.in_order  # until a source's failure was given out before held elements
        self.held: deque[Block] = deque()
        self.count = 0
        self.gap = 0  # elements that come before the next window, and are in none

    def resume(self, position: Position) -> Start:
        inner, gap = position
        self.gap = natural(gap)
        return Start.of(inner)

    def need(self, want: int) -> int:
        return (want - 1) * self.frame.shift + self.frame.span - self.count + self.gap

    def feed(self, block: Block) -> Block:
        lost = block.source_failures(len(block))
        if not lost:
            return self.feed_part(block)
        made: list[Block] = []
        for start, place in zip([0, *[place + 1 for place in lost]], [*lost, len(block)], strict=True):
            made.append(self.feed_part(block.slice(start, place)))
            if place < len(block):
                made.append(self.pass_on(block, place))
        return Block.join([one for one in made if len(one)])

    def pass_on(self, block: Block, place: int) -> Block:
        """Return the failure of a source by itself; the held elements stay for the next windows."""
        self.by_place = False
        held, gap, tickets = [piece.tickets for piece in self.held], self.gap, block.tickets
        if self.held:
            last = self.held.pop()
            size = len(last)
            behind = WrappedTickets(last.tickets, lambda count, inner: inner if count < size else tickets.at(place + 1))
            self.held.append(last.ticketed(behind))
        position = ExplicitTickets([tickets[place]], lambda count: [replaying(tickets.at(place + count), held), gap])
        return Block([block.items[place]], position, True)

    def feed_part(self, block: Block) -> Block:
        gone = min(self.gap, len(block))
        self.gap -= gone
        if gone == len(block):
            return Block([])
        self.held.append(block.slice(gone, len(block)) if gone else block)
        self.count += len(block) - gone
        ready = (self.count - self.frame.span) // self.frame.shift + 1
        return self.cut(ready) if ready > 0 else Block([])

    def cut(self, count: int) -> Block:
        """Return the next windows, the last of which may have fewer elements."""
        joined = Block.join(self.held)
        tickets = WindowTickets(joined.tickets, count, self.frame, self.by_place)
        items, window, (_, shift, stride), span = joined.items, self.node.window, self.frame, self.frame.span
        made = [
            window(items[number * shift : number * shift + span : stride], tickets, number) for number in range(count)
        ]
        self.leave(count * shift)
        return Block(made, tickets, Failure in set(map(type, made)))

    def leave(self, count: int) -> None:
        """Drop the first elements, also those that have not come yet."""
        self.gap = max(0, count - self.count)
        self.count = max(0, self.count - count)
        while count and self.held:
            first = self.held.popleft()
            if len(first) > count:
                self.held.appendleft(first.slice(count, len(first)))
            count -= min(count, len(first))

    def flush(self) -> Iterator[Block]:
        while self.count and not self.node.drop_remainder:
            yield self.cut(1)


@final
class WindowTickets(Tickets):
    """The tickets of windows over elements that follow each other: those of their members.

    Elements that a window shares with the one before it are read again from their place, or listed by ticket if the
    order may differ then.
    """

    __slots__ = ("base", "by_place", "count", "frame")

    def __init__(self, base: Tickets, count: int, frame: Frame, by_place: bool) -> None:
        self.base = base
        self.count = count
        self.frame = frame
        self.by_place = by_place

    def __len__(self) -> int:
        return self.count

    def places(self, index: int) -> range:
        start = index * self.frame.shift
        return range(start, min(start + self.frame.span, len(self.base)), self.frame.stride)

    def __getitem__(self, index: int) -> Tickets:
        places = self.places(index)
        return self.base.slice(places.start, places.stop) if places.step == 1 else FilteredTickets(self.base, places)

    def at(self, count: int) -> Position:
        next_one, end = count * self.frame.shift, len(self.base)
        begin = min(next_one, end)
        if self.by_place:
            return [self.base.at(begin), next_one - begin]
        return [replaying(self.base.at(end), [self.base.slice(begin, end)]), next_one - begin]


def open_members(items: Sequence[Any], make: Make, where: str = "") -> Any:
    """Return a dataset of elements, or a structure of datasets of their parts; a failure is in each of them."""
    if LEAVES.issuperset(map(type, items)):
        return make(Members(items))
    good = [item for item in items if type(item) is not Failure]
    levels = [open_level(item) for item in good]
    first = next(iter(levels), None)
    check_parts([level and sorted(level.names) for level in levels], where)
    if first is None:
        return make(Members(items))
    rows = [dict(zip(level.names, level.parts, strict=True)) for level in levels if level is not None]
    parts: list[Any] = []
    try:
        for name in first.names:
            column = (row[name] for row in rows)
            parts.append(open_members([i if type(i) is Failure else next(column) for i in items], make, where + name))
        return first.rebuild(parts)
    except RecursionError:
        raise endless(good[0]) from None


def check_parts(names: Sequence[list[str] | None], where: str) -> None:
    """Raise unless all members of a window have the same parts, or none."""
    for odd in names:
        if odd != names[0]:
            one, other = ("no parts" if parts is None else f"parts {parts}" for parts in (names[0], odd))
            place = f"leaf {where} of a window's members" if where else "the members of a window"
            raise StructureError(f"{place} must have the same shape and dtype: one has {one}, another {other}")


@dataclass(frozen=True, eq=False)
class Members(IndexedSource):
    """The elements of a window, which are there already, failures in their places."""

    items: Sequence[Any] = field(repr=False, metadata=REPLACEABLE)

    def stage(self) -> Produce:
        return Produce(self.blocks, waits=False)

    @property
    def cardinality(self) -> int:
        return len(self.items)

    def label(self) -> str:
        return f"window of {len(self.items)}"

    def at_once(self, most: int) -> Iterator[Block] | None:
        return iter([block_of(self.items, Ordinals(0, len(self.items)))]) if 0 < len(self.items) <= most else None

    async def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        """Yield as many elements as are requested, again and again."""
        start, size = 0 if position is None else self.parse_position(position, natural), len(self.items)
        while start < size:
            stop = min(size, start + want.items)
            yield block_of(self.items[start:stop], Ordinals(start, stop))
            start = stop

    async def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        done = 0
        while done < len(tickets):
            some = tickets[done : done + want.items]
            done += len(some)
            yield block_of([self.items[place] for place in some], ReplayedTickets(some, 0, len(some), END))


def block_of(items: Sequence[Any], tickets: Tickets) -> Block:
    """Return a block of elements that other windows may give as well: each gets its own copy of a failure."""
    failed = Failure in set(map(type, items))
    good = isolated([*items])
    return Block([copied_failure(i) if type(i) is Failure else i for i in good] if failed else good, tickets, failed)
