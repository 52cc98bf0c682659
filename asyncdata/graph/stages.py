"""The seven stages that every transformation runs as: Produce, Apply, Fold, FoldCalls, Rerun, Merge, Transfer.

A running stage is an async generator of blocks. It never yields more items than its reader's `Demand`, never an empty
block, and closes its input when it is left. Concurrency, cancellation and back-pressure live here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, TypeAlias

from asyncdata.executors.function_call import INLINE_GROUP, Call, ChunkSizer
from asyncdata.executors.group_work import GroupWork
from asyncdata.executors.inflight_window import InFlightWindow, ResultStatistics
from asyncdata.executors.scope import Scope
from asyncdata.executors.workers import Workers
from asyncdata.graph.stage_workers import CallExecutor, workers_of
from asyncdata.memory.buffer_pool import LARGE
from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.meter import Meter
from asyncdata.runtime.queue import BufferSize, LoopQueue, LoopSignal, now_on
from asyncdata.runtime.retry_count import RETRIED
from asyncdata.runtime.tickets import FRESH, Position, Start

__all__ = (
    "INLINE_GROUP",
    "Apply",
    "CallStep",
    "Fold",
    "FoldCalls",
    "Merge",
    "Opener",
    "Produce",
    "Rerun",
    "Stage",
    "Step",
    "Transfer",
    "fill",
    "split",
    "yield_to_loop",
)

CLOSE_LOOKS: Final = 8
"""After how many calls the clock is checked where more are called at once than the reader wants."""

Opener: TypeAlias = Callable[[Scope, Demand, Start], Blocks]
"""Starts a pipeline up to some node, from its beginning or from where it once stopped; may be called again."""


class Stage(Protocol):
    """How a node runs."""

    counts: ClassVar[bool]
    """Whether it reports to the scope's meter itself, as it times its work anyway."""

    @property
    def waits(self) -> bool:
        """Whether it may wait for anything but its inputs, for which most need an event loop: see `Node.needs_loop`."""
        ...

    def open(self, scope: Scope, inputs: Sequence[Opener], want: Demand, start: Start) -> Blocks:
        """Start to run; before each pull, `want` holds how many items the next block may have."""
        ...


class Sequential:
    """A sequential transformation with memory."""

    done = False
    """Whether the output is complete, so that the input need not be read further."""

    def resume(self, position: Position) -> Start:
        """Restore the position of an earlier run, and return where the input must start."""
        return Start.of(position)

    def need(self, want: int) -> int:
        """Return how many items to request from the input for the demand `want`; of fewer it makes fewer."""
        return want


class Step(Sequential):
    """A sequential transformation with memory and without I/O, tested without an event loop."""

    def feed(self, block: Block) -> Block:
        """Take a block, return the output so far; may be empty."""
        raise NotImplementedError

    def flush(self) -> Iterator[Block]:
        """Return the last output when the input has ended."""
        return iter(())


class CallStep(Sequential):
    """A sequential transformation that calls or awaits the user's functions with their state."""

    async def feed(self, group: Block) -> Block:
        """Take about a millisecond's worth of items, `need` at most, and return the output so far; may be empty."""
        raise NotImplementedError

    async def flush(self) -> Blocks:
        """Yield the last output when the input has ended."""
        return
        yield


@dataclass(frozen=True)
class Produce:
    """0→1: a source."""

    start: Callable[[Scope, Demand, Position], Blocks]
    waits: bool = True
    counts: ClassVar[bool] = False

    def open(self, scope: Scope, inputs: Sequence[Opener], want: Demand, start: Start) -> Blocks:
        return self.start(scope, want, start.position)


@dataclass(frozen=True)
class Fold:
    """1→1, sequential, stateful: runs a fresh `Step` for each epoch."""

    make: Callable[[Scope], Step]
    counts: ClassVar[bool] = True

    @property
    def waits(self) -> bool:
        return False

    def open(self, scope: Scope, inputs: Sequence[Opener], want: Demand, start: Start) -> Blocks:
        step, inner = self.make(scope), Demand(ahead=scope.reads_ahead)
        begin = FRESH if start.position is None else step.resume(start.position)
        return self.run(step, inputs[0](scope, inner, begin), inner, want, scope.meter)

    async def run(self, step: Step, source: Blocks, inner: Demand, want: Demand, meter: Meter) -> Blocks:
        """Feed the step until it is done or its input ends, then flush it.

        It makes about a millisecond's worth of output at a time. Large elements, such as batches, come one by one, and
        reuse the memory of the last one, which is still in the processor's cache, unless it is held. While nothing
        comes out, other tasks run once a millisecond.
        """
        pace, rested = ChunkSizer(INLINE_GROUP), time.perf_counter()
        async with aclosing(source):
            while not step.done:
                inner.ask(step.need(min(want.items, pace.group)))
                inner.least, inner.waited = step.need(want.least), False
                block = out = part = None  # do not hold the last block while the next is made
                block = await anext(source, None)
                if block is None:
                    break
                begin = time.perf_counter()
                out = step.feed(block)
                size, now = out.count, time.perf_counter()
                meter.record(out, size, now - begin, size)
                inner.came(block, size)
                if size and want.items > 1:  # else there is no choice
                    learn(pace, out, size, now - begin)
                if size or inner.waited:
                    rested = begin  # the reader's turn to rest, or others have run
                elif now - rested > INLINE_GROUP:
                    rested = now
                    await yield_to_loop()
                if 0 < size <= want.items:
                    yield out
                else:
                    for part in parts_of(out, want):
                        yield part
        for block in meter.timed(step.flush()):
            for part in split(block, want):
                yield part


@dataclass(frozen=True)
class FoldCalls:
    """1→1, sequential, with state and functions of the user's: runs a fresh `CallStep` for each epoch."""

    make: Callable[[], CallStep]
    is_async: bool
    """Whether functions are awaited."""
    one_by_one: bool = False
    """Whether each item is a group, as for coroutine functions: a result comes out as soon as it is there."""
    counts: ClassVar[bool] = False

    @property
    def waits(self) -> bool:
        return self.is_async

    def open(self, scope: Scope, inputs: Sequence[Opener], want: Demand, start: Start) -> Blocks:
        step, inner = self.make(), Demand()
        begin = FRESH if start.position is None else step.resume(start.position)
        return self.run(step, inputs[0](scope, inner, begin), inner, want)

    async def run(self, step: CallStep, source: Blocks, inner: Demand, want: Demand) -> Blocks:
        """Feed the step about a millisecond's worth at a time, until it is done or its input ends, then flush it."""
        pace = ChunkSizer(INLINE_GROUP)
        async with aclosing(source):
            while not step.done:
                inner.items = step.need(want.items)
                if (block := await anext(source, None)) is None:
                    break
                start = 0
                while start < len(block) and not step.done:
                    group = block.slice(start, start + min(pace.group, step.need(want.items)))
                    start += len(group)
                    begin = time.perf_counter()
                    out = await step.feed(group)
                    if not self.one_by_one:
                        pace.measured(len(group), time.perf_counter() - begin)
                    if not len(out):
                        await yield_to_loop()
                    for part in split(out, want):
                        yield part
        async with aclosing(step.flush()) as rest:
            async for block in rest:
                yield block


@dataclass(frozen=True)
class Rerun:
    """1→1: decides how often its input runs, from where, and whether at all: several times, in pieces, only once."""

    blocks: Callable[[Scope, Opener, Demand, Position], Blocks]
    waits: bool = True
    counts: ClassVar[bool] = False

    def open(self, scope: Scope, inputs: Sequence[Opener], want: Demand, start: Start) -> Blocks:
        return self.blocks(scope, inputs[0], want, start.position)


@dataclass(frozen=True)
class Merge:
    """n→1: decides which of several inputs, or of the pipelines that it makes itself, runs when."""

    merge: Callable[[Scope, Sequence[Opener], Demand, Position], Blocks]
    waits: bool = True
    counts: ClassVar[bool] = False

    def open(self, scope: Scope, inputs: Sequence[Opener], want: Demand, start: Start) -> Blocks:
        return self.merge(scope, inputs, want, start.position)


@dataclass(frozen=True)
class Transfer:
    """1→1, to another task: a buffer of `items`, filled while its reader works."""

    items: int
    step: object
    """Whose buffer it is."""
    counts: ClassVar[bool] = False

    @property
    def waits(self) -> bool:
        return self.items != 0

    def open(self, scope: Scope, inputs: Sequence[Opener], want: Demand, start: Start) -> Blocks:
        if self.items == 0:
            return inputs[0](scope, want, start)
        return self.run(scope, inputs[0], want, start)

    async def run(self, scope: Scope, opener: Opener, want: Demand, start: Start) -> Blocks:
        depth = BufferSize(self.items, scope.owned.budget.share())
        scope.owned.budget.buffers[self.step] = depth.stats
        queue = LoopQueue(depth, LoopSignal(scope.loop), signal := LoopSignal(scope.loop))
        scope.meter.buffers(queue)
        cancel = scope.spawn(lambda: fill(queue, opener, scope, start))
        try:
            while True:
                block = None
                if not queue.may_read():
                    queue.request_more()
                    await signal.until(queue.may_read)
                block = queue.take_ready(want.items)
                if block is None:
                    return
                yield block
        finally:
            cancel.cancel()


async def fill(
    queue: LoopQueue,
    opener: Opener,
    scope: Scope,
    start: Start = FRESH,
    turn: AbstractAsyncContextManager[None] | None = None,
) -> None:
    """Read a pipeline into a queue while the queue has space; each pull waits for its `turn`.

    A turn lasts until all requested elements have come.
    """
    turn = turn or nullcontext()
    want = Demand()
    async with aclosing(opener(scope, want, start)) as source:
        while await queue.wait_for_capacity():
            async with turn:
                while (space := queue.capacity()) > 0:
                    want.items, begin = space, now_on(scope.loop)
                    block = await anext(source, None)
                    if block is None:
                        queue.finish_complete()
                        return
                    queue.put(block, now_on(scope.loop) - begin)
                    size, block = len(block), None
                    await yield_to_loop()
                    if size == space:
                        break


async def yield_to_loop() -> None:
    """Yield to the other tasks of the loop: a stage that never waits must not starve them."""
    await asyncio.sleep(0)


@dataclass(frozen=True)
class Apply:
    """1→1, stateless: functions called on each element, one after another, in place or `workers` at a time."""

    calls: tuple[Call, ...]
    workers: int | None = None
    ordered: bool = True
    executor: CallExecutor | None = None
    copied: bool = False
    rows: int | None = None
    learnt: ResultStatistics | None = None
    """Measurements of earlier runs."""
    counts: ClassVar[bool] = True

    def open(self, scope: Scope, inputs: Sequence[Opener], want: Demand, start: Start) -> Blocks:
        if self.workers is not None:
            inner = Demand()
            workers = workers_of(scope, self.work, self.workers, self.executor, self.copied)
            return self.concurrent(scope, workers, inputs[0](scope, inner, start), inner, want)
        work, meter = self.work.at(scope.epoch, scope.meter.function_seconds), scope.meter
        if self.is_async:
            return self.awaited(work, inputs[0](scope, want, start), want, meter)
        inner = Demand(ahead=scope.reads_ahead)
        return self.inline(work, inputs[0](scope, inner, start), inner, want, meter)

    @property
    def work(self) -> GroupWork:
        """The functions that are called for each element."""
        return GroupWork(self.calls, self.rows)

    @property
    def is_async(self) -> bool:
        return any(call.is_async for call in self.calls)

    @property
    def waits(self) -> bool:
        return self.workers is not None or self.is_async

    async def inline(self, work: GroupWork, source: Blocks, inner: Demand, want: Demand, meter: Meter) -> Blocks:
        """Call the functions in this thread, for about a millisecond's worth of elements at a time; large elements are
        made one by one, in memory that is still in the processor's cache."""
        pace = ChunkSizer(INLINE_GROUP)
        async with aclosing(source):
            while True:
                inner.ask(want.items)
                inner.least = want.least
                if (block := await anext(source, None)) is None:
                    return
                start = made = 0
                while start < len(block):
                    size = min(pace.group, want.items * inner.times)
                    group = block.slice(start, start + size) if start or size < len(block) else block
                    term, begin = pace.term(), time.perf_counter()
                    if inner.times > 1:  # some may pass, after many that did not, to a function that is slow
                        term = term._replace(step=min(term.step, CLOSE_LOOKS))
                    result, done = work.attempt(group, term)
                    seconds = time.perf_counter() - begin
                    items = len(result)
                    meter.record(result, items, seconds, done)
                    learn(pace, result, done, seconds)
                    start, made = start + done, made + items
                    if 0 < items <= want.items:
                        yield result
                    elif items:
                        for part in parts_of(result, want):
                            yield part
                    else:
                        await yield_to_loop()
                    group = result = part = None  # do not hold the last block while the next is made
                inner.came(block, made)
                block = None

    async def awaited(self, work: GroupWork, source: Blocks, want: Demand, meter: Meter) -> Blocks:
        """Await the functions on one element after the other; results that are ready at once go out together."""
        now = meter.clock.now
        async with aclosing(source):
            async for block in source:
                start = 0
                while start < len(block):
                    begin = now()
                    result = work.run_ready(block, start, want.items, INLINE_GROUP)
                    done = 1 if result is None else len(result)
                    if result is None:
                        RETRIED.set(meter.retried)
                        result = await work.run_async(block.slice(start, start + 1))
                    start += done
                    meter.awaited(result, now() - begin)
                    if result.items:
                        yield result

    async def concurrent(self, scope: Scope, workers: Workers, source: Blocks, inner: Demand, want: Demand) -> Blocks:
        """Keep `workers` threads, tasks or processes busy, and give out results in order unless the options say
        otherwise."""
        window = InFlightWindow(scope, workers, self.ordered, self.rows, self.learnt)
        feeding = scope.spawn(lambda: window.feed(source, inner))
        try:
            while (block := await window.collect(want)) is not None:
                if 0 < block.count <= want.items:
                    yield block
                    continue
                for part in parts_of(block, want):
                    yield part
        finally:
            feeding.cancel()
            window.stop()


def learn(pace: ChunkSizer, made: Block, size: int, seconds: float) -> None:
    """Adapt the group size to these items: one, if they are large."""
    if not len(made) or made.weight < LARGE:
        pace.measured(size, seconds)
    else:
        pace.group = 1


def split(block: Block, want: Demand) -> Iterable[Block]:
    """Return a block in parts, each of at most as many items as the demand when it is requested."""
    size = len(block)
    if size <= want.items:
        return (block,) if size else ()
    return parts_of(block, want)


def parts_of(block: Block, want: Demand) -> Iterator[Block]:
    start, end = 0, len(block)
    while start < end:
        size = want.items
        yield block.slice(start, start + size)
        start += size
