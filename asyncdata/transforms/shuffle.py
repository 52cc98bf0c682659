"""shuffle: a buffer that elements pass through in random order, and its fusion with repeat.

Elements 0 to n-1 fill the slots of a buffer of n. Element t after those goes to slot `hash(key, t) % n` and replaces
the element there, which is given out; at the end the buffer is drained in the order of a keyed permutation. This is the
law of tf.data's buffer (a uniformly chosen element leaves, the next takes its place), and the content of the buffer at
t is a function of t and the key alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from asyncdata.errors import ResumeError
from asyncdata.executors.element_rng import Chance, epoch_key, mixed
from asyncdata.executors.function_call import describe
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import ELSEWHERE, EVERYTHING, Node, PlaceBelow, Unary, repeated
from asyncdata.graph.stages import Fold, Opener, Rerun, Step, split, yield_to_loop
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.orders import MOST_PLACES, Order, Ordered, Places
from asyncdata.runtime.resharding import Resharding, named, replaying_tickets
from asyncdata.runtime.tickets import (
    END,
    FRESH,
    ChildTickets,
    ExplicitTickets,
    Position,
    Start,
    Ticket,
    Tickets,
    decode_all,
    encode_all,
    is_named,
    natural,
    plain,
)
from asyncdata.transforms.concatenate import from_parts
from asyncdata.transforms.repeat import in_turn, turn_and_places
from asyncdata.transforms.shuffle_buffer import ColumnBuffer

__all__ = ("BufferOrder", "DrainOrder", "Shuffle", "ShuffleRepeat", "drain_order", "slots")

AT_ONCE: Final = 1 << 16
"""So many exchanges are computed again at once."""

MOST_BETWEEN: Final = 1 << 27
"""So many are computed for however few places: a filter may have left out what is between, and it takes seconds."""

FEW: Final = 32
"""Fewer numbers are put into their slots one by one."""


def slots(start: int, stop: int, size: int, key: int) -> npt.NDArray[np.int64]:
    """Return the slot of each of elements `start` to `stop` in a buffer of `size`."""
    return ((mixed(start, stop, key) >> np.uint64(32)) * np.uint64(size) >> np.uint64(32)).astype(np.int64)


def drain_order(size: int, key: int) -> npt.NDArray[np.intp]:
    """Return the order in which a buffer that holds `size` elements is drained."""
    return np.argsort(mixed(0, size, ~key & 0xFFFFFFFFFFFFFFFF), kind="stable")


@dataclass(frozen=True, eq=False)
class Shuffle(Unary):
    """Elements in random order, through a buffer of `size`; in another order each epoch if `reshuffle`."""

    size: int
    seed: int = field(metadata=ELSEWHERE)
    reshuffle: bool = True
    drawn: bool = field(default=False, metadata=ELSEWHERE)

    shuffles = True
    retains_elements = True

    @property
    def holds(self) -> int:
        return self.size

    def repeated_as_one(self, count: int) -> ShuffleRepeat:
        return ShuffleRepeat(self.input, self.size, self.seed, self.reshuffle, count)

    @property
    def chance(self) -> Chance:
        return Chance(self.seed, self.drawn)

    @staticmethod
    def of(plan: Node, size: int, seed: int, reshuffle: bool | None, *, drawn: bool) -> Shuffle:
        """Return a shuffle for the user's arguments; `drawn` says that the user gave no seed."""
        return Shuffle(plan, EVERYTHING if size < 0 else size, seed, reshuffle is not False, drawn)

    def stage(self) -> Fold:
        return Fold(self.step)

    def step(self, scope: Scope) -> Shuffler:
        """Return the buffer for one epoch."""
        return Shuffler(self.size, self.key(scope), self.input)

    def key(self, scope: Scope) -> int:
        """Return the random choices of an epoch."""
        return epoch_key(self.seed, scope.epoch if self.reshuffle else ())

    def read_before(self, position: Position) -> int | None:
        return self.input.read_before(Start.of(parse_place(position).input).position)

    def place_below(self, position: Position) -> PlaceBelow:
        place = parse_place(position)
        return PlaceBelow(place.input, place.seen, exactly=place.held is None)

    def check_back(self, scope: Scope, start: Start) -> None:
        super().check_back(scope, start)
        if start.back and start.position not in (None, END):
            held = {*map(plain, parse_place(start.position).tickets(self.key(scope)))}
            if twice := [ticket for ticket in start.back if plain(ticket) in held]:
                raise ResumeError(
                    f"{self.label()}: the state lists {describe(twice[0])} as read and as held in the buffer "
                    "(the state is damaged; start without it)"
                )

    def label(self) -> str:
        return f"shuffle({size_label(self.size, self.reshuffle)})"

    def reshard(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        key = epoch_key(self.seed, resharding.epoch if self.reshuffle else ())
        places = [parse_place(at) for at in positions]
        tickets = {plain(ticket): ticket for place in places for ticket in place.tickets(key)}  # of a lost file: once
        mine = resharding.own_part([*tickets.values()])
        held, rest = mine[: self.size], mine[self.size :]
        inner = self.input.resharded([place.input for place in places], resharding)
        return replaying_tickets(ShufflePlace(len(held), inner, held=encode_all(held)).position(), rest)


def size_label(size: int, reshuffle: bool) -> str:
    shown = "everything" if size >= EVERYTHING else size
    return f"{shown}{'' if reshuffle else ', reshuffle_each_iteration=False'}"


@dataclass(frozen=True)
class ShufflePlace:
    """A position: elements seen, the input's position, and the content of the buffer, or the rest of it if `drained`.

    Where tickets are ordinals, or the numbers in a cache that has a `name`, the content of the buffer is a function of
    the number seen and the buffer's size, and is not stored.
    """

    seen: int
    input: Position
    drained: int | None = None
    held: list[Any] | None = None
    size: int | None = None
    name: int | None = None

    def position(self) -> Position:
        """Return it as JSON, without unknown fields."""
        return {name: value for name, value in vars(self).items() if value is not None or name == "input"}

    def tickets(self, key: int) -> list[Ticket]:
        """Return the tickets of the elements in the buffer: by slot, or at the end in the order of delivery."""
        if self.held is not None:
            return decode_all(self.held)
        inside = slot_contents(self.seen, self.size or 1, key)
        if self.drained is not None:
            inside = in_order(inside, drain_order(len(inside), key)[self.drained :])
        return named_all(inside, self.name)


def named_all(numbers: list[int], name: int | None) -> list[Ticket]:
    """Return the tickets of elements with these numbers in what has this name."""
    return numbers if name is None else [(name, number) for number in numbers]


def parse_place(position: Position) -> ShufflePlace:
    """Return the decoded position; at the start and the end no element has been counted."""
    fields: dict[str, Any] = {"seen": 0, **named(position, "input")}
    return ShufflePlace(**fields)


def slot_contents(seen: int, size: int, key: int) -> list[Any]:
    """Return the element in each slot when so many have come: the last one that was sent there."""
    inside = np.arange(min(seen, size))
    missing = np.ones(len(inside), bool)
    high = seen
    while high > size and missing.any():
        low = max(size, high - max(4096, 2 * size))
        slot, last = np.unique(slots(low, high, size, key)[::-1], return_index=True)
        fresh = missing[slot]
        inside[slot[fresh]] = high - 1 - last[fresh]
        missing[slot] = False
        high = low
    return inside.tolist()


class Moves(NamedTuple):
    """Which of some elements push out which of them, each in a slot of its choice, and which stay in which slot."""

    again: npt.NDArray[np.intp]
    before: npt.NDArray[np.intp]
    slots: npt.NDArray[Any]
    last: npt.NDArray[np.intp]

    @staticmethod
    def of(places: npt.NDArray[Any], size: int) -> Moves:
        """Find that for all at once: sorted by their slots, each comes after the one that it replaces."""
        narrow = places.astype(np.uint16) if size <= 1 << 16 else places  # which are sorted by their digits, in a fifth
        order = np.argsort(narrow, kind="stable")
        sorted_places = places[order]
        same = sorted_places[1:] == sorted_places[:-1]
        last = np.append(~same, True)
        return Moves(order[1:][same], order[:-1][same], sorted_places[last], order[last])


class Exchanges:
    """Consecutive elements. Each goes into a random slot and replaces the element there."""

    def __init__(self, places: npt.NDArray[Any], size: int) -> None:
        self.places = places
        self.size = size
        self.cached_moves: Moves | None = None

    @property
    def moves(self) -> Moves:
        """Which pushes out which, found when arrays ask for it."""
        if (
            self.cached_moves is None
        ):  # not `cached_property`: its lock, up to Python 3.11, would stay held in a forked child
            self.cached_moves = Moves.of(self.places, self.size)
        return self.cached_moves

    def of(self, held: Any, values: Any) -> Any:
        """Put values into their slots, and return the values they replace: lists into a list, arrays into an array."""
        if isinstance(held, list):
            return pushed(held, self.places.tolist(), values)
        if len(self.places) < FEW:
            return np.array(pushed(held, self.places.tolist(), values), held.dtype)
        out = held[self.places]
        out[self.moves.again] = values[self.moves.before]
        held[self.moves.slots] = values[self.moves.last]
        return out


def pushed(held: Any, places: list[int], values: Any) -> list[Any]:
    """Put values into their slots one by one, and return the values they replace."""
    out: list[Any] = []
    push = out.append
    for place, value in zip(places, values, strict=True):
        push(held[place])
        held[place] = value
    return out


def in_order(held: Any, order: npt.NDArray[Any]) -> Any:
    return [held[place] for place in order.tolist()] if isinstance(held, list) else held[order]


class ShuffleJournal:
    """The tickets that were held at some time, and each exchange since: this gives those at any later time."""

    def __init__(self, held: list[Ticket]) -> None:
        self.held = held
        self.exchanges: list[tuple[list[int], list[Ticket]]] = []
        self.count = 0

    def add(self, places: list[int], tickets: list[Ticket]) -> int:
        """Take note of an exchange, and return its number."""
        self.exchanges.append((places, tickets))
        self.count += len(places)
        return len(self.exchanges) - 1

    def at(self, number: int, count: int) -> list[Any]:
        """Return the tickets held after the first `count` elements of an exchange, as JSON."""
        held = list(self.held)
        for places, tickets in self.exchanges[:number]:
            for place, ticket in zip(places, tickets, strict=True):
                held[place] = ticket
        places, tickets = self.exchanges[number]
        for place, ticket in zip(places[:count], tickets[:count], strict=True):
            held[place] = ticket
        return encode_all(held)


@dataclass(frozen=True)
class BufferOrder(Order):
    """The order in which a buffer of `held` elements gives those that are pushed out of it, where elements are numbered
    from 0 as they come in."""

    held: int

    def described(self) -> dict[str, Any]:
        return {"buffer": [self.key, self.held]}

    def tickets(self, places: Places) -> Places:
        ranks = np.argsort(places, kind="stable")
        wanted, found, done = places[ranks], np.empty(len(places), np.int64), 0
        start, end = int(wanted[0]) + self.held, int(wanted[-1]) + self.held + 1
        if end - start > max(len(places) << 16, MOST_BETWEEN):  # all in between are computed
            raise ValueError(f"{len(places)} of {end - start} places")
        inside = np.asarray(slot_contents(start, self.held, self.key), np.int64)
        for first in range(start, end, AT_ONCE):
            stop = min(end, first + AT_ONCE)
            swap = Exchanges(slots(first, stop, self.held, self.key), self.held)
            out: Places = swap.of(inside, np.arange(first, stop))
            upto = int(np.searchsorted(wanted, stop - self.held))
            found[ranks[done:upto]] = out[wanted[done:upto] + self.held - first]
            done = upto
        return found


@dataclass(frozen=True)
class DrainOrder(Order):
    """The order in which a buffer of `held` elements is drained, of which so many had come in: `seen`."""

    held: int
    seen: int

    def described(self) -> dict[str, Any]:
        return {"drained": [self.key, self.held, self.seen]}

    def tickets(self, places: Places) -> Places:
        return drained(self.key, self.held, self.seen)[places]


@lru_cache(1)
def drained(key: int, held: int, seen: int) -> Places:
    """Return the elements of a buffer in the order in which it is drained."""
    inside = np.asarray(slot_contents(seen, held, key), np.int64)
    return inside[drain_order(len(inside), key)]


class Shuffler(Step):
    """The buffer: items and their tickets by slot.

    Once it is full, their numbers are in arrays: ordinals, and places in the column buffer.
    """

    def __init__(self, size: int, key: int, source: Node) -> None:
        self.size = size
        self.key = key
        self.source = source
        self.held: Any = []
        self.tickets: Any = []
        self.seen = 0
        self.drained: int | None = None
        self.failed = False
        self.dense = True
        self.name: int | None = None
        """The name of the cache that the elements come from; while `dense`, `tickets` are their numbers there."""
        self.journal: ShuffleJournal | None = None
        self.expected = 0  # elements that were held already, and come first
        self.may_grow = source.may_grow
        self.after: Position = None
        """From where the input resumes, if more of it may come after its end."""
        self.column_buffer: ColumnBuffer | None = None
        """The store for rows of arrays; the buffer then holds their places."""

    def begin(self, position: Position) -> Start:
        """Resume at the position of an earlier run, if there was one that had not ended."""
        return Start(position) if position in (None, END) else self.resume(position)

    def resume(self, position: Position) -> Start:
        place = ShufflePlace(**position)
        self.seen, self.drained = natural(place.seen), place.drained and natural(place.drained)
        self.dense, self.name = place.held is None and place.size == self.size, place.name
        if place.held is None:
            self.check(place)
        tickets = place.tickets(self.key)
        self.expected, self.after = len(tickets), place.input
        return Start.of(place.input, tickets)

    def check(self, place: ShufflePlace) -> None:
        """Raise `ResumeError` if a buffer cannot have seen, or given out, as many elements as a place says."""
        start, seen = Start.of(place.input), place.seen
        if seen and place.size is None:
            raise ResumeError(f"shuffle({self.size}): the state has no buffer (the state is damaged; start without it)")
        read = None if start.back or start.skip else self.source.read_before(start.position)
        if read is not None and seen > read:
            raise ResumeError(
                f"shuffle({self.size}): the state says that {seen} elements entered the buffer, but {read} were read "
                "(the state is damaged; start without it)"
            )
        if place.drained is not None and (start.position != END or place.drained > min(seen, place.size or 1)):
            raise ResumeError(
                f"shuffle({self.size}): the state says that {place.drained} elements left the buffer at the end, but "
                "it cannot hold so many (the state is damaged; start without it)"
            )

    def need(self, want: int) -> int:
        return want + min(max(self.expected, self.size - len(self.held)), 4096)

    def feed(self, block: Block) -> Block:
        self.failed |= block.failed
        if self.expected:
            block = self.put_back(block)
        if self.may_grow and len(block):
            self.after = block.tickets.at(len(block))
        filling = max(0, min(len(block), self.size - len(self.held)))  # another pipeline's buffer may have been larger
        if filling:
            self.count(block.tickets.slice(0, filling))
            self.hold(block, filling)
        if filling == len(block):
            return Block([])
        return self.exchange(block.slice(filling, len(block)))

    def put_back(self, block: Block) -> Block:
        """Put the elements back that were held; return the rest."""
        count = min(self.expected, len(block))
        self.hold(block, count)
        self.expected -= count
        return block.slice(count, len(block))

    def hold(self, block: Block, count: int) -> None:
        part = block if count == len(block) else block.slice(0, count)
        content = self.content(part)
        self.held.extend(content)
        self.tickets.extend(part.tickets if self.name is None or not self.dense else map(plain, part.tickets))

    def content(self, block: Block) -> Any:
        """Return the buffer's content for a block: elements, or places in the column buffer if all rows have one
        spec."""
        if self.column_buffer is None and not len(self.held) and block.columns:
            self.column_buffer = ColumnBuffer.like(block.columns[0])
        if self.column_buffer is None:
            return block.items
        places = self.column_buffer.put_block(block)
        if places is not None:
            return places.tolist() if isinstance(self.held, list) else places
        self.held = self.column_buffer.look(np.asarray(self.held, np.intp)).elements() if len(self.held) else []
        self.column_buffer = None
        return block.items

    def count(self, tickets: Tickets) -> None:
        """Take note of elements that come in."""
        if self.dense and not self.goes_on(tickets):
            self.dense = False
            self.tickets = named_all(np.asarray(self.tickets, np.int64).tolist(), self.name)
        self.seen += len(tickets)

    def goes_on(self, tickets: Tickets) -> bool:
        """Return whether tickets are the numbers that follow those that were seen, in what has the same name."""
        if tickets.run_from(self.seen):
            return self.name is None
        if not is_named(tickets[0]) or (self.seen and tickets[0][0] != self.name):
            return False
        self.name = tickets[0][0]
        columns = tickets.in_columns(0, len(tickets))
        if columns is None:
            return False
        numbers = np.arange(self.seen, self.seen + len(tickets))
        return np.array_equal(columns["1"], numbers) and bool((columns["0"] == self.name).all())

    def exchange(self, block: Block) -> Block:
        """Put each item into its slot; the item that was there comes out."""
        if self.column_buffer is not None:
            self.held = np.asarray(self.held, np.intp)
        content, before = self.content(block), self.seen
        places = slots(before, before + len(block), self.size, self.key)
        self.count(block.tickets)
        tickets, since = self.numbered(block.tickets, places)
        swap = Exchanges(places, self.size)
        items, tickets = swap.of(self.held, content), swap.of(self.tickets, tickets)

        def position(count: int) -> Position:
            place = ShufflePlace(before + count, block.tickets.at(count), size=self.size, name=self.name)
            known = {} if since is None else {"held": since[0].at(since[1], count), "size": None, "name": None}
            return replace(place, **known).position()

        first = before - self.size
        return self.block(items, tickets, position, BufferOrder(self.key, MOST_PLACES, self.size), first)

    def numbered(self, tickets: Tickets, places: npt.NDArray[Any]) -> tuple[Any, tuple[ShuffleJournal, int] | None]:
        """Return tickets to be held, and where their exchange is written down, which that of ordinals need not be."""
        if self.dense:
            self.tickets = np.asarray(self.tickets, np.int64)
            return np.arange(self.seen - len(tickets), self.seen), None
        listed = list(tickets)
        return listed, self.note(places.tolist(), listed)

    def note(self, places: list[int], tickets: list[Ticket]) -> tuple[ShuffleJournal, int]:
        """Write down an exchange, and return where."""
        if self.journal is None or self.journal.count > self.size:
            self.journal = ShuffleJournal(list(self.tickets))
        return self.journal, self.journal.add(places, tickets)

    def flush(self) -> Iterator[Block]:
        if not len(self.held):
            return
        order = drain_order(len(self.held), self.key) if self.drained is None else np.arange(len(self.held))
        drained, seen, dense = self.drained or 0, self.seen, self.dense
        items, tickets = in_order(self.held, order), in_order(self.tickets, order)

        def position(count: int) -> Position:
            if self.may_grow:
                return ShufflePlace(seen, self.after, held=encode_all(self.before_drain(tickets[count:]))).position()
            if dense:
                return ShufflePlace(seen, END, drained + count, size=self.size, name=self.name).position()
            return ShufflePlace(seen, END, drained + count, encode_all(tickets[count:])).position()

        yield self.block(items, tickets, position, DrainOrder(self.key, MOST_PLACES, self.size, seen), drained)

    def before_drain(self, tickets: Any) -> list[Ticket]:
        """Return tickets by slot, such that draining these slots gives them in this order."""
        held: list[Ticket] = [0] * len(tickets)
        for place, ticket in zip(drain_order(len(tickets), self.key).tolist(), tickets, strict=True):
            held[place] = ticket
        return named_all(held, self.name) if self.dense else held

    def block(self, items: Any, tickets: Any, position: Callable[[int], Position], order: Order, first: int) -> Block:
        """Return elements, which stand in an order from a place on if their tickets are their numbers."""
        places = Ordered(order, np.arange(first, first + len(items))) if self.dense else None
        if isinstance(tickets, list):
            listed = ExplicitTickets(cast("list[Any]", tickets), position, places=places)
        else:
            listed = ExplicitTickets(tickets.tolist(), position, tickets, places)
        if self.dense and self.name is not None:
            listed = ChildTickets(self.name, listed, lambda position: position)
        if self.column_buffer is not None:
            return Block.of_columns([self.column_buffer.take(np.asarray(items, np.intp))], listed)
        return Block(items, listed, self.failed and Failure in set(map(type, items)))


@dataclass(frozen=True, eq=False)
class ShuffleRepeat(Unary):
    """shuffle, then repeat: the next epoch fills the buffer while the last one drains; epochs do not mix."""

    size: int
    seed: int = field(metadata=ELSEWHERE)
    reshuffle: bool
    count: int

    retains_elements = True

    @property
    def holds(self) -> int:
        return self.size

    def stage(self) -> Rerun:
        return Rerun(self.blocks, waits=False)

    @property
    def cardinality(self) -> int:
        return repeated(self.input.cardinality, self.count)

    def label(self) -> str:
        return f"shuffle_and_repeat({size_label(self.size, self.reshuffle)}, count={self.count})"

    @property
    def turn(self) -> Shuffle:
        """One repetition alone."""
        return Shuffle(self.input, self.size, self.seed, self.reshuffle)

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        return from_parts(lambda turn, inner, start: self.input.open(scope.at(turn), inner, start), want, tickets)

    async def blocks(self, scope: Scope, opener: Opener, want: Demand, position: Position) -> Blocks:
        """Yield epoch after epoch, each through a buffer of its own."""
        drained, last_buffer = list[Block](), None
        repetition, places = self.parse_position(position or (0,), turn_and_places)
        while self.count < 0 or repetition < self.count:
            epoch = scope.at(repetition)
            shuffler = self.turn.step(epoch)
            if last_buffer is not None:  # the first rows of the next epoch may come as elements, where few are wanted
                shuffler.column_buffer = ColumnBuffer(last_buffer.template)
            inner, place = Demand(), Start.of(places[0] if places else None)
            places = places[1:]
            async with aclosing(opener(epoch, inner, shuffler.begin(place.position))) as source:
                async with aclosing(self.overlap(shuffler, source, inner, drained, want)) as last:
                    async for block in last:
                        yield block
                async with aclosing(self.turn.again(epoch, want, place)) as left:
                    async for block in left:
                        yield block.ticketed(in_turn(repetition, block.tickets, places))
                async with aclosing(self.epoch(shuffler, source, inner, want)) as shuffled:
                    async for block in shuffled:
                        yield block.ticketed(in_turn(repetition, block.tickets, places))
            if shuffler.seen == 0 and place == FRESH:
                if self.count < 0 or self.input.cardinality == 0:
                    return
                await yield_to_loop()
            last_buffer = shuffler.column_buffer
            drained = [block.ticketed(in_turn(repetition, block.tickets, places)) for block in shuffler.flush()]
            repetition += 1
        for block in drained:
            for part in split(block, want):
                yield part

    async def overlap(
        self, shuffler: Shuffler, source: Blocks, inner: Demand, drained: list[Block], want: Demand
    ) -> Blocks:
        """Drain the last epoch; for each element that leaves, one of this epoch comes in."""
        for block in drained:
            for part in split(block, want):
                inner.items = min(len(part), self.size - len(shuffler.held))
                if inner.items > 0 and (read := await anext(source, None)) is not None:
                    shuffler.feed(read)
                yield part

    async def epoch(self, shuffler: Shuffler, source: Blocks, inner: Demand, want: Demand) -> Blocks:
        """Yield the elements that the rest of this epoch replaces in the buffer."""
        while True:
            inner.items = shuffler.need(want.items)
            read = await anext(source, None)
            if read is None:
                return
            out = shuffler.feed(read)
            if not len(out):
                await yield_to_loop()
            for part in split(out, want):
                yield part
