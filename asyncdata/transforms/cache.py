"""cache: elements of the first epoch are stored in memory for later ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Final, TypeAlias

from asyncdata.elements.isolation import ISOLATED, isolate, isolated
from asyncdata.elements.structure import nbytes
from asyncdata.errors import ResumeError, StageError
from asyncdata.executors.process.exceptions import copied_failure
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import PHYSICAL, Node, Unary, beginning, picked
from asyncdata.graph.stages import Opener, Rerun
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.tickets import (
    END,
    FRESH,
    NAMES,
    ChildTickets,
    Ordinals,
    Position,
    Start,
    Ticket,
    Tickets,
    WrappedTickets,
    name_of,
    natural,
    plain,
)
from asyncdata.system import forks

__all__ = ("Cache", "MemoryCache")


class Hole:
    """Takes the place of an element that failed, which is read again each time."""

    __slots__ = ()

    nbytes = 0


HOLE: Final = Hole()


class MemoryCache:
    """The cached elements: a prefix of the input's elements, and whether these are all.

    Iterators on several threads may fill it at once: they all run the same epoch of the input, so the first that has
    read an element adds it.
    """

    def __init__(self, max_bytes: int | None = None, begin: Position = None) -> None:
        self.begin = begin
        """Where the input began, if only a position tells."""
        self.order: int | None = None
        """A hash of the tickets of all elements, if another run may have others."""
        self.items: list[Any] = []
        self.odd: set[int] = set()
        """Where there is no element: a hole, or a failure of an input that could not make it again."""
        self.complete = False
        self.max_bytes = max_bytes
        self.bytes = 0
        self.full = False
        self.last: tuple[Tickets, int] | None = None  # of the block that the last element is in, and its place there
        self.lock = forks.lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it empty: another process caches its own elements."""
        return MemoryCache, (self.max_bytes,)

    def named(self) -> tuple[int | None, CachePosition]:
        """Return a number that tells the elements from those of another run, and the position of the first; no number
        if each run gives the same."""
        known = [self.begin, self.order]
        name = None if known == [None, None] else hashed_name(json.dumps(known))
        return name, CachePosition(begin=self.begin, order=self.order)

    def offer(self, position: int, block: Block, again: bool | None) -> None:
        """Add the elements of `block`, from number `position` on, if they follow the cached ones and fit.

        For a failed element a hole is stored if it can be read `again`, or the failure itself if that is `None`; else
        the cache ends before it.
        """
        with self.lock:
            begin = len(self.items)
            if self.complete or self.full or position > begin:
                return
            added = isolated(block.items[begin - position :])
            if block.failed:
                places = [place for place, item in enumerate(added) if type(item) is Failure]
                if places and again is False:
                    added, places = added[: places[0]], []
                for place in places:
                    added[place] = HOLE if again else again_if_failed(added[place])
                self.odd.update(begin + place for place in places)
            if self.max_bytes is not None:
                added = self.fitting(added, self.max_bytes)
            if not added:
                return
            self.items.extend(added)
            self.last = (block.tickets, len(self.items) - position)

    def fitting(self, added: list[Any], most: int) -> list[Any]:
        """Return the elements that fit into the cache; after one that does not fit, none does."""
        for place, item in enumerate(added):
            self.bytes += nbytes(item)
            if self.bytes > most:
                self.full = True
                return added[:place]
        return added

    def resume_point(self, position: int) -> Start:
        """Return where the input continues at number `position`: at once if that is after the cached elements."""
        with self.lock:
            if self.last is None or position != len(self.items):
                start = Start.of(self.begin)
                return replace(start, skip=start.skip + position)
            tickets, place = self.last
            return Start.of(tickets.at(place))

    def cached(self, position: int, count: int) -> Block | None:
        """Return up to `count` cached elements from number `position` on, `None` if there are none."""
        with self.lock:  # other readers replace failures, and add new ones
            items = self.items[position : position + count]
            good = not self.odd or self.odd.isdisjoint(range(position, position + len(items)))
        items = isolated(items, ISOLATED)
        if good:
            return Block(items) if items else None
        places = [place for place, item in enumerate(items) if type(item) is Hole]
        items = [again_if_failed(item) for item in items[: min(places, default=None)]]
        return Block(items, failed=Failure in set(map(type, items))) if items else None

    def has_hole(self, position: int) -> bool:
        """Return whether element `position` has failed each time it was read."""
        return position in self.odd and type(self.items[position]) is Hole

    def replace_failure(self, position: int, item: Any) -> None:
        """Add an element that had failed before, if it fits."""
        with self.lock:
            if self.max_bytes is not None:
                size = nbytes(item)
                if self.bytes + size > self.max_bytes:
                    return
                self.bytes += size
            self.items[position] = isolate(item)
            self.odd.discard(position)

    def adopt(self, other: MemoryCache) -> None:
        """Take over the elements of another cache, if that is complete and this one is not."""
        with self.lock:
            if other.complete and not self.complete:
                self.items, self.odd, self.complete = other.items, other.odd, True
                self.begin, self.order = other.begin, other.order

    def finish(self, position: int) -> None:
        """Record that the input ended after `position` elements."""
        with self.lock:
            self.complete = self.complete or position == len(self.items)


class BeyondTickets:
    """The input after the cached elements, opened where these end, and opened again if another reader has added
    some."""

    def __init__(self, store: MemoryCache, start: Callable[[Start], Blocks]) -> None:
        self.store = store
        self.start = start
        self.source: Blocks | None = None
        self.position = 0

    async def read(self, position: int) -> Block | None:
        """Return the next elements, from number `position` on; `None` at the end."""
        if self.position != position:
            await self.aclose()
        if self.source is None:
            self.source = self.start(self.store.resume_point(position))
        block = await anext(self.source, None)
        self.position = position + len(block or ())
        return block

    async def aclose(self) -> None:
        """Close the input."""
        source, self.source = self.source, None
        if source is not None:
            await source.aclose()


@dataclass(frozen=True, eq=False)
class Cache(Unary):
    """The input's elements, computed once. If an epoch is left early, what was read stays cached; the next one
    continues.

    An element that failed is read again in each epoch: alone if the input has random access, else with all elements
    after it. An input that may differ each time it runs (a generator, an unordered map) is cached only if it was read
    to its end in one run, with its failures.
    """

    store: MemoryCache = field(default_factory=MemoryCache, repr=False, metadata=PHYSICAL)

    retains_elements = True

    @property
    def stores_elements(self) -> bool:
        return True

    def over(self, *inputs: Node) -> Cache:
        return Cache(*inputs, store=MemoryCache(self.store.max_bytes))

    @property
    def resume_note(self) -> str:
        return f"{self.label()} is filled again"

    def stage(self) -> Rerun:
        return Rerun(self.blocks, waits=False)

    def replay_then_run(self, scope: Scope, want: Demand, start: Start) -> Blocks:
        if start.position != END:
            self.begin_at(self.parse_position(start.position, CachePosition.of).begin)
        return super().replay_then_run(scope, want, start)

    def begin_at(self, begin: Position) -> None:
        """Have the cache filled from where the input began in an earlier run, if it is empty."""
        if begin is not None and not self.store.items:
            self.store.begin = begin

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        if isinstance(tickets[0], tuple) and tickets[0][0] == FIRST:
            return self.input.open(first_of_all(scope), want, Start(END, [ticket for _, ticket in tickets]))
        return self.by_number(scope, want, tickets)

    async def by_number(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Yield elements by their numbers, which those without a fixed order have when all have come."""
        if not (self.input.in_order or self.store.complete):
            async with aclosing(self.run(scope, Demand(1024), FRESH)) as source:
                async for _ in source:
                    pass
        async with aclosing(picked(self, scope, want, tickets, check=self.check_names)) as found:
            async for block in found:
                yield block

    def check_names(self, block: Block, tickets: Sequence[Ticket]) -> None:
        """Raise `ResumeError` if a block is of another cache than that of some tickets."""
        if name_of(block.tickets[0]) not in {*map(name_of, tickets)}:
            raise self.refilled()

    def refilled(self) -> ResumeError:
        return ResumeError(
            f"{self.label()} had other elements when the state was saved, as the steps before it do not give the same "
            "in each run: start without the state; the elements of cache(filename) stay"
        )

    async def blocks(self, scope: Scope, opener: Opener, want: Demand, position: Position) -> Blocks:
        """Yield the cached elements, then the rest of the input."""
        place = self.parse_position(position, CachePosition.of)
        self.begin_at(place.begin)
        if place.input is not None:
            passing = self.passing(opener(first_of_all(scope), want, Start.of(place.input)))
        elif self.input.in_order or self.store.complete:
            passing = self.ordered(scope, opener, want, place)
        else:
            passing = self.unordered(scope, opener, want, place)
        async with aclosing(passing):
            async for block in passing:
                yield block

    def store_for(self, place: CachePosition) -> MemoryCache:
        """Return the cache of a run from a place on: one of its own, if it began elsewhere, or may give others."""
        begin = self.store.begin if place.begin is None else place.begin
        if begin != self.store.begin or not (self.input.repeatable or self.store.complete):
            return MemoryCache(self.store.max_bytes, begin)
        if place.order is not None and place.order != self.store.order:
            raise self.refilled()
        return self.store

    async def ordered(self, scope: Scope, opener: Opener, want: Demand, place: CachePosition) -> Blocks:
        """Yield the elements after a place; those that are not cached are read, and added to the cache."""
        store, done = self.store_for(place), place.done
        again = self.input.random_access if store is self.store else None
        position, named = min(done, len(store.items)), store.named()
        async with aclosing(BeyondTickets(store, lambda start: opener(first_of_all(scope), want, start))) as beyond:
            while True:
                complete = store.complete  # asked first: others fill it meanwhile
                block = store.cached(position, want.items)
                if block is None and position < len(store.items):
                    if not store.has_hole(position):
                        continue  # another iterator has just filled it
                    block = await self.tried(store, position, opener, scope)
                elif block is None:
                    block = None if complete else await beyond.read(position)
                    if block is None:
                        break
                    if not position and store.begin is None:
                        store.begin = self.beginning(block.tickets)
                        named = store.named()
                    store.offer(position, block, again)
                    block = isolated_block(block)
                first, position = position, position + len(block)
                if position > done:
                    yield numbered(block, first, *named).slice(max(0, done - first), len(block))
        store.finish(position)
        self.store.adopt(store)

    def beginning(self, first: Tickets) -> Position:
        """Return where the input began; a source that cannot tell is run again."""
        with suppress(ResumeError):
            return beginning(self.input, first)
        return None

    async def tried(self, store: MemoryCache, position: int, opener: Opener, scope: Scope) -> Block:
        """Read one element again that failed before, and cache it if it succeeds."""
        start = Start(END, self.input.address([position]))
        async with aclosing(opener(first_of_all(scope), Demand(1), start)) as source:
            block = await anext(source, None)
        if block is None:
            raise StageError(f"{self.label()}: element {position}, which failed, is no longer stored")
        if not block.failed:
            store.replace_failure(position, block.items[0])
        return isolated_block(block)

    async def unordered(self, scope: Scope, opener: Opener, want: Demand, place: CachePosition) -> Blocks:
        """Yield an input without a fixed order, and cache it in the order of its tickets, which is the same in every
        run of the same elements."""
        store = MemoryCache(self.store.max_bytes, self.store.begin)
        cached: list[tuple[str, Block]] = []
        source = opener(first_of_all(scope), want, Start.of(store.begin))
        async with aclosing(source):
            async for made in source:
                if not cached and store.begin is None:
                    store.begin = self.beginning(made.tickets)
                block = in_passing(made)
                own = Block([*map(again_if_failed, block.items)], block.tickets, True) if block.failed else block
                cached += [(repr(plain(own.tickets[i])), own.slice(i, i + 1)) for i in range(len(own))]
                if place == STORED:
                    yield isolated_block(block)
        cached.sort(key=itemgetter(0))
        for position, (_, block) in enumerate(cached):
            store.offer(position, block, None)
        store.order = hashed_name(*map(itemgetter(0), cached))
        store.finish(len(cached))
        self.store.adopt(store)
        if place != STORED:
            async with aclosing(self.ordered(scope, opener, want, place)) as source:
                async for block in source:
                    yield block

    async def passing(self, source: Blocks) -> Blocks:
        """Yield elements as they come, for the first time."""
        async with aclosing(source):
            async for block in source:
                yield in_passing(block)


def in_passing(block: Block) -> Block:
    """Return a block with tickets that hold the position of the input."""
    return block.ticketed(ChildTickets(FIRST, block.tickets, lambda position: CachePosition(0, position).position()))


def hashed_name(*words: str) -> int:
    """Return the name of stored elements that depends on all of some words."""
    return NAMES - int.from_bytes(blake2b("\n".join(words).encode(), digest_size=6).digest())


def first_of_all(scope: Scope) -> Scope:
    """Return the scope of the cached epoch: the very first, whichever epoch fills the cache.

    So a cache that is filled again, in a later epoch of another process, holds the same.
    """
    return scope.with_epoch((0,))


def isolated_block(block: Block) -> Block:
    """Return a block for the reader whose elements are also in the cache."""
    items = isolated(block.items)
    return block if items is block.items else Block(items, block.tickets, block.failed)


FIRST = -1
"""The parent of elements that have no number yet; others have the name of what they are stored in, if it has one."""


Seeds: TypeAlias = Sequence[Sequence[int]] | None
"""For the steps that have one, each with its place in the account of a plan; `None` if it is not known."""


@dataclass(frozen=True)
class CachePosition:
    """How many elements are done; the input's position while it is read for the first time, if another run may give
    others; the seeds of the elements in a file, and in which run it was written; of those in memory where the input
    began, and a hash of their tickets."""

    done: int = 0
    input: Position = None
    seeds: Seeds = None
    written: int | None = None
    begin: Position = None
    order: int | None = None

    def position(self) -> Position:
        """Return the form that `of` parses."""
        place: dict[str, Any] = {"done": self.done, "input": self.input}
        if self.seeds:
            place["seeds"] = [list(pair) for pair in self.seeds]
        more = {"written": self.written, "begin": self.begin, "order": self.order}
        return place | {name: value for name, value in more.items() if value is not None}

    @staticmethod
    def of(position: Position) -> CachePosition:
        place = CachePosition() if position is None else CachePosition(**position)
        natural(place.done)
        return place


STORED: Final = CachePosition()


def numbered(block: Block, first: int, name: int | None = None, stored: CachePosition = STORED) -> Block:
    """Return a block with its elements' numbers for tickets, in what has that name; positions say how it is stored."""
    numbers: Tickets = Ordinals(first, first + len(block))
    if name is not None:
        numbers = ChildTickets(name, numbers, lambda done: done)
    return block.ticketed(WrappedTickets(numbers, lambda _, done: replace(stored, done=done).position()))


def again_if_failed(item: Any) -> Any:
    """Return a cached item; a failure as a new one, which was not given out before."""
    return copied_failure(item) if type(item) is Failure else item
