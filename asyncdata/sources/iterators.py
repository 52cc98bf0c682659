"""Sources of user code: generators, iterables, async iterables."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from inspect import isasyncgenfunction, isfunction, isgeneratorfunction, isroutine
from operator import index
from typing import Any

from asyncdata.elements.columns import ColumnBatch
from asyncdata.elements.isolation import isolated
from asyncdata.elements.structure import conform
from asyncdata.errors import PlanError, ResumeError, StageError, StructureError
from asyncdata.executors.function_call import locate, noted
from asyncdata.executors.iterator_bridge import IteratorBridge, LoopBridge, Notify, ThreadBridge
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import PHYSICAL, REPLACEABLE, Node, in_turn, picked
from asyncdata.graph.stages import Produce
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.tickets import (
    END,
    FRESH,
    Ordinals,
    Position,
    ReplayedTickets,
    RestorableItem,
    SourceSnapshot,
    Start,
    Ticket,
    Tickets,
    decode,
)
from asyncdata.sources.stateful import SnapshotTickets, Stateful, StreamPlace, begun, takes_others

__all__ = ("AsyncIterated", "Generated", "Iterated", "Restarted")


class IteratorSource(Node):
    """A source that another thread or loop runs."""

    @property
    def repeatable(self) -> bool:
        return False

    def pump(self, scope: Scope, place: StreamPlace) -> IteratorBridge:
        """Start the user's iterator in its thread or loop, from the state of a position."""
        raise NotImplementedError

    @property
    def resume_note(self) -> str:
        kind, make = self.made_by()
        if kind is not None and issubclass(kind, Stateful) and takes_others(kind):
            return f"{self.label()} is run again up to the position: its state_dict needs arguments of its own"
        if kind is not None and issubclass(kind, Stateful):
            return f"{self.label()} resumes at its own offset"
        unseen = ", unless its iterator is Stateful" if not self.once and may_return_anything(make) else ""
        return f"{self.label()} is run again up to the position{unseen}"

    def made_by(self) -> tuple[type | None, object]:
        """Return the class of the iterable if it is known, and the callable that makes the iterator."""
        raise NotImplementedError

    def where(self) -> str:
        """Return the name of this source in messages."""
        return self.label()

    def converted(self, items: list[Any]) -> list[Any] | ColumnBatch:
        """Convert the iterator's values to elements, with failures in their places."""
        return items

    def stage(self) -> Produce:
        return Produce(self.blocks)

    def read_before(self, position: Position) -> int | None:
        return None if position == END else self.parse_position(position, StreamPlace.of).number

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        begin = oldest(tickets)
        if begin is None:
            return picked(self, scope, want, tickets, FRESH, self.check_same)
        return self.fetch_from(scope, want, tickets, begin)

    async def fetch_from(
        self, scope: Scope, want: Demand, tickets: Sequence[Ticket], begin: SourceSnapshot | None
    ) -> Blocks:
        """Yield the elements with these tickets, which are read from a state on."""
        found: dict[Ticket, Any] = {}
        while begin is not None:
            inner, first = Demand(), begin.position(begin.number)
            now, later = parted(tickets, begin)
            async with aclosing(self.run(scope, inner, Start(first))) as source:
                begin = await self.read_again(source, inner, now, found, begin.number) or oldest(later)
        for block in in_turn(found, tickets, want):
            yield block

    def check_same(self, block: Block, tickets: Sequence[Ticket]) -> None:
        """Raise `ResumeError` if a block that is read again does not lead to the elements that had these tickets.

        Few sources can tell.
        """

    def replay_then_run(self, scope: Scope, want: Demand, start: Start) -> Blocks:
        if start.position == END:
            return super().replay_then_run(scope, want, start)
        place = self.parse_position(start.position, StreamPlace.of)
        begin = None if place.state is None else oldest([*start.back, decode(start.position)])
        self.check_back(scope, start)
        return self.run_through(scope, want, start, begin)

    async def run_through(self, scope: Scope, want: Demand, start: Start, begin: SourceSnapshot | None) -> Blocks:
        """Yield the elements to repeat and continue, in one run: a stream may be readable only once."""
        found: dict[Ticket, Any] = {}
        needed = [*start.back, decode(start.position)]
        while True:
            inner, reached = Demand(), 0 if begin is None else begin.number
            first = None if begin is None else begin.position(reached)
            now, later = parted(needed, begin)
            there = None if later else start.position
            async with aclosing(self.run(scope, inner, Start(first))) as source:
                begin = await self.read_again(source, inner, now, found, reached, there) or oldest(later)
                if begin is not None:
                    continue
                for place, ticket in enumerate(start.back):
                    if ticket not in found:
                        raise self.lost(ticket)
                    item = found[ticket]
                    yield Block(
                        [item], ReplayedTickets(start.back, place, place + 1, start.position), type(item) is Failure
                    )
                found.clear()
                inner.items = want.items
                while (block := await anext(source, None)) is not None:
                    yield block
                    inner.items = want.items
                return

    async def read_again(
        self,
        source: Blocks,
        want: Demand,
        needed: Sequence[Ticket],
        found: dict[Ticket, Any],
        reached: int,
        goal: Position = None,
    ) -> SourceSnapshot | None:
        """Put the elements that are needed into `found`, and read up to the goal, a position that is among them.

        Behind a failure elements may have other numbers than they had: this ends there, and returns the state from
        which to go on.
        """
        wanted, position = set(needed), None
        failures = [ticket for ticket in needed if isinstance(ticket, RestorableItem) and ticket.failed]
        end = max(map(index, needed)) + (goal is None)
        while reached < end:
            want.items = min(4096, end - reached)
            if (block := await anext(source, None)) is None:
                raise self.ended(reached, end)
            self.check_same(block, needed)
            failed = next((number for number, item in enumerate(block.items, reached) if type(item) is Failure), end)
            found.update(pair for pair in enumerate(block.items, reached) if pair[0] in wanted and pair[0] <= failed)
            self.check_failed(block, failed - reached, found, failures)
            found.update({ticket: self.still_failed(ticket, found) for ticket in failures if ticket in found})
            if failed < end - (goal is None):
                behind = self.state_behind(block.items[failed - reached], failed, needed)
                if behind is not None:
                    return behind
            reached += len(block)
            position = block.tickets.at(len(block))
        if goal is not None:
            self.check_reached(position, goal)
        return None

    def check_failed(self, block: Block, place: int, found: Mapping[Ticket, Any], failures: Sequence[Ticket]) -> None:
        """Raise if a source with states fails now for an element that is needed, and that it gave before."""
        if place < len(block) and isinstance(block.tickets, SnapshotTickets):
            ticket = block.tickets[place]
            if ticket in found and ticket not in failures:
                raise self.differs(block.items[place].error)

    def still_failed(self, ticket: Ticket, found: Mapping[Ticket, Any]) -> Failure:
        """Return the failure in the place of an element that failed before: what comes now comes again behind it."""
        if type(item := found[ticket]) is Failure:
            return item
        return noted(
            StageError("the source failed here before the state was saved; called again it does not"),
            self.where(),
            ticket,
            of_source=True,
        )

    def state_behind(self, failure: Failure, number: int, needed: Sequence[Ticket]) -> SourceSnapshot | None:
        """Return the state for the next element that is needed behind a failure; `None` for a source without states.

        `ResumeError` if it was saved before the failure: then there was none, as states are asked for after each.
        """
        rest = [ticket for ticket in needed if isinstance(ticket, RestorableItem)]
        if len(rest) < len(needed):
            return None
        snapshot = min(ticket for ticket in rest if ticket > number).snapshot
        if snapshot.number <= number:
            raise self.differs(failure.error)
        return snapshot

    def check_reached(self, position: Position, expected: Position) -> None:
        """Raise if a source that was run up to an element is elsewhere than it was when the state was saved."""

    async def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        """Yield what the pump has ready, up to the demand; to resume, run the source up to the position first."""
        place = self.parse_position(position, StreamPlace.of)
        pump = self.pump(scope, place)
        start, first, lost = place.first, place.number, None
        try:
            while items := await pump.pull(min(4096, first - start) if start < first else want.items):
                if isinstance(items, list) and not pump.begun and (place.state is not None or first > 1):
                    raise self.refused(items[0].error)
                stop = start + len(items)
                if start >= first:
                    yield self.block(items, self.tickets(pump, start, stop))
                elif isinstance(items, list) and (failed := [item for item in items if type(item) is Failure]):
                    if place.state is not None:  # states are asked for after each failure, so there was none then
                        raise self.differs(failed[0].error)
                    lost = failed[-1].error
                start = stop
            if start < first:
                raise self.ended(start, first) from lost
        finally:
            pump.stop()

    def tickets(self, pump: IteratorBridge, start: int, stop: int) -> Tickets:
        """Return the tickets of elements that came from a pump."""
        snapshots = pump.snapshots_of(stop)
        return SnapshotTickets(start, stop, snapshots) if snapshots else Ordinals(start, stop)

    def refused(self, error: BaseException) -> ResumeError:
        """Return the error for a source that cannot be run again."""
        if isinstance(error, ResumeError):
            return error
        refusal = ResumeError(f"{self.where()}: it cannot be started again to resume: {error}")
        refusal.__cause__ = error
        return refusal

    def differs(self, error: BaseException) -> ResumeError:
        """Return the error for a source that fails where it gave an element before."""
        refusal = ResumeError(
            f"{self.where()}: from its state on it must give the same elements again, up to the one it resumes at, and "
            f"one failed that had not failed: {error}; start without the state"
        )
        refusal.__cause__ = error
        return refusal

    def ended(self, count: int, expected: int) -> ResumeError:
        """Return the error for a source that gives fewer elements than before."""
        return ResumeError(
            f"{self.where()}: it ended after {count} elements, and {expected} had been read when the state was saved; "
            "run again it must give the same elements"
        )

    def block(self, items: list[Any] | Block, tickets: Tickets) -> Block:
        """Return `items` as a block, converted, with notes on failures."""
        if isinstance(items, Block):
            return items.ticketed(tickets)
        found = self.converted(items)
        if isinstance(found, ColumnBatch):
            return Block.of_columns([found], tickets)
        failed = Failure in set(map(type, found))
        if failed:
            for place, item in enumerate(found):
                if type(item) is Failure:
                    found[place] = noted(item.error, self.where(), tickets[place], item.of_source)
        return Block(found, tickets, failed)


@dataclass(frozen=True, eq=False)
class Generated(IteratorSource):
    """The elements of `generator(*args)`, which is called for each epoch."""

    generator: Callable[..., Iterable[Any]] = field(metadata=REPLACEABLE)
    args: tuple[Any, ...] = field(default=(), repr=False)
    declared: Any = field(default=None, repr=False)

    @property
    def signature(self) -> Any:
        return self.declared

    def pump(self, scope: Scope, place: StreamPlace) -> IteratorBridge:
        source = self.generator if may_return_anything(self.generator) else None
        make = partial(self.start, place.state)
        return ThreadBridge(scope, make, "asyncdata-generator", place.first, source=source, failures=place.failures)

    def start(self, state: str | None) -> tuple[Iterator[Any], Notify | None]:
        """Call the function, and iterate over its result from a state on."""
        return begun(self.label(), self.generator(*self.args), iter, state)

    def made_by(self) -> tuple[type | None, object]:
        made = self.generator
        return (made, getattr(made, "__iter__", None)) if isinstance(made, type) else (None, made)

    def converted(self, items: list[Any]) -> list[Any]:
        return items if self.declared is None else [self.conformed(item) for item in items]

    def conformed(self, item: Any) -> Any:
        if type(item) is Failure:
            return item
        try:
            return conform(item, self.declared)
        except StructureError as error:
            return Failure(error)

    def label(self) -> str:
        name = getattr(self.generator, "__qualname__", type(self.generator).__name__)
        return f"from_generator({name.rpartition('<locals>.')[2]})"

    def where(self) -> str:
        return self.label() + locate(self.generator)


@dataclass(frozen=True, eq=False)
class Iterated(IteratorSource):
    """The elements of a plain iterable."""

    iterable: Iterable[Any] = field(repr=False, metadata=REPLACEABLE)
    unread: list[bool] = field(default_factory=lambda: [True], repr=False, metadata=PHYSICAL)

    @property
    def once(self) -> bool:
        return isinstance(self.iterable, Iterator)

    @property
    def process_bound_reason(self) -> str | None:
        return "an iterator can be read only in this process; give an iterable that starts again" if self.once else None

    def pump(self, scope: Scope, place: StreamPlace) -> IteratorBridge:
        make, source = partial(self.start, place.state), self.iterable
        return ThreadBridge(scope, make, "asyncdata-iterable", place.first, source=source, failures=place.failures)

    def start(self, state: str | None) -> tuple[Iterator[Any], Notify | None]:
        once_only(self)
        return begun(self.label(), self.iterable, iter, state)

    def converted(self, items: list[Any]) -> list[Any]:
        """Convert values to elements: a collection holds them, other iterables make new ones."""
        return isolated(items) if isinstance(self.iterable, Collection) else items

    def made_by(self) -> tuple[type | None, object]:
        return type(self.iterable), type(self.iterable).__iter__

    def label(self) -> str:
        return f"from_iterable({type(self.iterable).__name__})"


@dataclass(frozen=True, eq=False)
class Restarted:
    """An async iterable that calls an async generator function whenever it is read."""

    make: Callable[[], AsyncIterator[Any]]

    def __aiter__(self) -> AsyncIterator[Any]:
        return self.make()


@dataclass(frozen=True, eq=False)
class AsyncIterated(IteratorSource):
    """The elements of an async iterable. It runs on the consumer's loop, to which its sockets and locks belong."""

    iterable: AsyncIterable[Any] = field(repr=False, metadata=REPLACEABLE)
    unread: list[bool] = field(default_factory=lambda: [True], repr=False, metadata=PHYSICAL)

    @property
    def once(self) -> bool:
        return isinstance(self.iterable, AsyncIterator)

    @property
    def process_bound_reason(self) -> str:
        return "it belongs to the event loop that it is read on; use from_generator or from_iterable"

    def pump(self, scope: Scope, place: StreamPlace) -> IteratorBridge:
        return LoopBridge(
            scope, scope.consumer_loop, lambda: self.start(place.state), place.first, failures=place.failures
        )

    def start(self, state: str | None) -> tuple[AsyncIterator[Any], Notify | None]:
        once_only(self)
        return begun(self.label(), self.iterable, aiter, state)

    def made_by(self) -> tuple[type | None, object]:
        return type(self.iterable), type(self.iterable).__aiter__

    def label(self) -> str:
        made = self.iterable
        name = made.make.__qualname__ if isinstance(made, Restarted) else type(made).__name__
        return f"from_async_iterable({name.rpartition('<locals>.')[2]})"


def once_only(node: Iterated | AsyncIterated) -> None:
    """Raise if an iterator is read a second time, which would look like an empty epoch."""
    if not node.once:
        return
    try:
        node.unread.pop()
    except IndexError:
        raise PlanError(
            f"{node.label()}: an iterator can be read only once; for a second epoch, or to resume below two steps that "
            "hold elements, such as take and shuffle, give an iterable that starts again, Dataset.from_generator with "
            "a function, or cache()"
        ) from None


def may_return_anything(make: object) -> bool:
    """Return whether calling this may return an iterator of a user's class, neither a generator nor a built-in one."""
    if isgeneratorfunction(make) or isasyncgenfunction(make):
        return False
    return isfunction(make) or not isroutine(make)


def oldest(tickets: Sequence[Ticket]) -> SourceSnapshot | None:
    """Return the first state from which all these elements can be read; `None` if one of them has none."""
    snapshots = [ticket.snapshot for ticket in tickets if isinstance(ticket, RestorableItem)]
    return (
        min(snapshots, key=lambda snapshot: snapshot.number, default=None) if len(snapshots) == len(tickets) else None
    )


def parted(tickets: Sequence[Ticket], begin: SourceSnapshot | None) -> tuple[list[Ticket], list[Ticket]]:
    """Return the elements that are read from a state, and those behind a later failure, which are read from the state
    behind it: the call that failed may not fail again."""
    later = [
        isinstance(ticket, RestorableItem) and begin is not None and ticket.snapshot.failures > begin.failures
        for ticket in tickets
    ]
    pairs = [*zip(tickets, later, strict=True)]
    return [ticket for ticket, is_later in pairs if not is_later], [ticket for ticket, is_later in pairs if is_later]
