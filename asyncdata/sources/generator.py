"""Sources that are a user's code: generators, iterables, async iterables."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import index
from typing import Any

from asyncdata.errors import PlanError, StructureError
from asyncdata.plan import Node, picked
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.executors import locate, noted
from asyncdata.runtime.pump import LoopPump, Pump, ThreadPump
from asyncdata.runtime.scope import Scope
from asyncdata.runtime.stage import Produce
from asyncdata.runtime.tickets import Ordinals, Position, Ticket
from asyncdata.structure import conform

__all__ = ("AsyncIterated", "Generated", "Iterated")


class Pumped(Node):
    """A source that some other thread or loop runs."""

    @property
    def repeatable(self) -> bool:
        return False

    def pump(self, scope: Scope) -> Pump:
        """Start to run the user's iterator where it belongs."""
        raise NotImplementedError

    def where(self) -> str:
        """Return how messages name this source."""
        return self.label()

    def converted(self, items: list[Any]) -> list[Any]:
        """Return the elements for what the iterator gave, failures in their places."""
        return items

    def stage(self) -> Produce:
        return Produce(self.blocks)

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        return picked(self, scope, want, tickets)

    async def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        """Yield whatever the pump has ready, at most what is wanted; to go on somewhere, run it anew up to there."""
        pump = self.pump(scope)
        start, first = 0, self.told(position or 0, index)
        try:
            while items := await pump.pull(min(4096, first - start) if start < first else want.items):
                stop = start + len(items)
                if stop > first:
                    fresh = max(start, first)
                    yield self.block(items[fresh - start :], Ordinals(fresh, stop))
                start = stop
        finally:
            pump.stop()

    def block(self, items: list[Any], tickets: Ordinals) -> Block:
        """Return `items` as a block, converted, with notes on what failed."""
        items = self.converted(items)
        failed = Failure in set(map(type, items))
        if failed:
            for place, item in enumerate(items):
                if type(item) is Failure:
                    items[place] = noted(item.error, self.where(), tickets[place])
        return Block(items, tickets, failed)


@dataclass(frozen=True, eq=False)
class Generated(Pumped):
    """What `generator(*args)` iterates over, called anew for each epoch."""

    generator: Callable[..., Iterable[Any]]
    args: tuple[Any, ...] = ()
    declared: Any = None

    @property
    def signature(self) -> Any:
        return self.declared

    def pump(self, scope: Scope) -> Pump:
        return ThreadPump(scope, lambda: iter(self.generator(*self.args)), "asyncdata-generator")

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
class Iterated(Pumped):
    """What a plain iterable gives."""

    iterable: Iterable[Any] = field(repr=False)
    reads: Iterator[int] = field(default_factory=count, repr=False)

    @property
    def once(self) -> bool:
        return isinstance(self.iterable, Iterator)

    def pump(self, scope: Scope) -> Pump:
        return ThreadPump(scope, self.start, "asyncdata-iterable")

    def start(self) -> Iterator[Any]:
        iterator = iter(self.iterable)
        once_only(self, iterator)
        return iterator

    def label(self) -> str:
        return f"from_iterable({type(self.iterable).__name__})"


@dataclass(frozen=True, eq=False)
class AsyncIterated(Pumped):
    """What an async iterable gives, run on the loop of the consumer, to which its sockets and locks belong."""

    iterable: AsyncIterable[Any] = field(repr=False)
    reads: Iterator[int] = field(default_factory=count, repr=False)

    @property
    def once(self) -> bool:
        return isinstance(self.iterable, AsyncIterator)

    def pump(self, scope: Scope) -> Pump:
        return LoopPump(scope, self.start)

    def start(self) -> AsyncIterator[Any]:
        iterator = aiter(self.iterable)
        once_only(self, iterator)
        return iterator

    def label(self) -> str:
        return f"from_async_iterable({type(self.iterable).__name__})"


def once_only(node: Iterated | AsyncIterated, iterator: object) -> None:
    """Raise when an iterator, which can be read once, is to be read again: it would look like an empty epoch."""
    if node.iterable is iterator and next(node.reads) > 0:
        raise PlanError(
            f"{node.label()}: an iterator can be read only once; for a second epoch give an iterable that starts "
            "again, Dataset.from_generator with a function, or cache()"
        )
