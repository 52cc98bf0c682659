"""Lanes: several threads or tasks that run groups of elements at once, and the window that keeps their order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

from asyncdata.runtime.block import Block, Demand
from asyncdata.runtime.executors import Pace, Workers
from asyncdata.runtime.queue import MOST_BYTES, LoopSignal
from asyncdata.runtime.scope import Scope
from asyncdata.runtime.tickets import NOTHING, Arrived, Tickets
from asyncdata.structure import nbytes

try:
    from resource import RUSAGE_THREAD, getrusage
except ImportError:  # only Linux tells it of a thread
    getrusage = None

__all__ = ("Group", "Lanes", "TaskLanes", "ThreadLanes", "Window")

THREAD_GROUP: Final = 5e-4

MOST_HELD: Final = 4096
"""So many cheap elements in flight keep any number of workers busy; all of them run again after an interruption."""


class Group:
    """Elements that one lane works on together; `result` may be shorter where elements were dropped."""

    __slots__ = ("block", "cpu", "done", "error", "pauses", "result", "seconds")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.result = block
        self.done = False
        self.error: BaseException | None = None
        self.seconds = 0.0  # that its work took, and those of them that were computed
        self.cpu = 0.0
        self.pauses = 0  # how often its thread gave up its core by itself


class Lanes:
    """Where groups run: `finished` is called for each group, from any thread."""

    pace: Pace
    workers: int

    tuned = False
    """Whether AUTOTUNE chooses how many workers there are: then there may also be fewer groups than keep them busy."""

    def submit(self, group: Group, finished: Callable[[Group], None]) -> None:
        """Let a lane work on `group`."""
        raise NotImplementedError

    def read(self, waits: bool) -> None:
        """Take note that somebody wants results, and whether there are none yet."""

    def finish(self) -> None:
        """Let go of what is no longer needed when the groups submitted so far are done."""

    def stop(self) -> None:
        """Take no more groups; those begun may finish."""


class ThreadLanes(Lanes):
    """`count` threads that run a plain function over groups of about half a millisecond."""

    def __init__(self, scope: Scope, count: int, work: Callable[[Block], Block]) -> None:
        self.pace = Pace(THREAD_GROUP)
        self.work = work
        self.workers = count
        self.threads = Workers(scope.owned.start, count, "asyncdata-map")

    def submit(self, group: Group, finished: Callable[[Group], None]) -> None:
        def job() -> None:
            begin, busy, pauses = time.perf_counter(), time.thread_time(), paused()
            try:
                group.result = self.work(group.block)
            except BaseException as error:  # SystemExit and the like end the pipeline, not the thread
                group.error = error
            group.seconds, group.cpu = time.perf_counter() - begin, time.thread_time() - busy
            group.pauses = paused() - pauses if pauses else len(group.block)
            self.pace.measured(len(group.block), group.seconds)
            group.done = True
            finished(group)

        self.threads.submit(job)

    def finish(self) -> None:
        self.threads.finish()

    def stop(self) -> None:
        self.threads.stop()


def paused() -> int:
    """Return how often this thread has given up its core by itself, plus one; 0 where the system does not tell."""
    return 0 if getrusage is None else 1 + getrusage(RUSAGE_THREAD).ru_nvcsw  # pyright: ignore[reportPossiblyUnboundVariable]


class TaskLanes(Lanes):
    """`count` tasks that await a function on one element each."""

    def __init__(self, scope: Scope, count: int, work: Callable[[Block], Awaitable[Block]]) -> None:
        self.pace = Pace(0.0)
        self.work = work
        self.scope = scope
        self.workers = count
        self.waiting: deque[tuple[Group, Callable[[Group], None]]] = deque()
        self.idle: deque[LoopSignal] = deque()
        self.tasks: list[Any] = []

    def submit(self, group: Group, finished: Callable[[Group], None]) -> None:
        self.waiting.append((group, finished))
        if self.idle:
            self.idle.popleft().notify()
        elif len(self.tasks) < self.workers:
            self.tasks.append(self.scope.spawn(self.lane))

    async def lane(self) -> None:
        """Work on one group after the other."""
        signal = LoopSignal(self.scope.loop)
        while True:
            while self.waiting:
                group, finished = self.waiting.popleft()
                begin = time.perf_counter()
                group.result = await self.work(group.block)
                group.seconds = time.perf_counter() - begin
                group.done = True
                finished(group)
            self.idle.append(signal)
            await signal.until(self.waiting.__len__)

    def stop(self) -> None:
        for task in self.tasks:
            task.cancel()


class Window:
    """Groups in flight between the task that reads the input and the reader of the results.

    At most twice as many groups as there are workers: those being worked on, and as many that wait, either for a
    worker or (in order) for an earlier group.
    """

    def __init__(self, scope: Scope, lanes: Lanes, ordered: bool) -> None:
        self.lanes = lanes
        self.ordered = ordered
        self.groups: deque[Group] = deque()
        self.ready: deque[Group] = deque()
        self.pending: dict[Group, None] = {}  # without order: what was admitted and is not out yet
        self.last: Tickets = NOTHING
        self.held = 0
        self.part = scope.owned.budget.share()
        self.weight = 0  # of an element, before and after; after is not known to begin with
        self.known = False
        self.most = 1 if lanes.tuned else 2 * lanes.workers
        self.ended = False
        self.reader = LoopSignal(scope.loop, threadsafe=True)
        self.feeder = LoopSignal(scope.loop)

    async def feed(self, source: AsyncGenerator[Block, None], want: Demand) -> None:
        """Read the input as far as the window allows and hand it to the lanes."""
        async with aclosing(source):
            while True:
                await self.feeder.until(self.may_feed)
                want.items = self.room()
                block = await anext(source, None)
                if block is None:
                    break
                self.admit(block)
        self.ended = True
        self.reader.notify()

    def room(self) -> int:
        """Return how many elements may be read: bounded in groups, in number and in bytes by the last one seen."""
        return self.bound() - self.held

    def bound(self) -> int:
        """Return how many elements may be in flight."""
        return min(self.wanted(), self.most if self.lanes.tuned else max(self.most, 2 * self.lanes.workers))

    def wanted(self) -> int:
        """Return how many elements in flight keep the workers busy."""
        groups = 2 * self.lanes.workers
        return min(groups * self.lanes.pace.group, max(groups, MOST_HELD)) if self.known else groups

    def share(self) -> int:
        """Return how many elements make a group: no more than leave room for all the groups that keep workers busy."""
        return max(1, min(self.lanes.pace.group, self.bound() // (2 * self.lanes.workers)))

    def may_feed(self) -> bool:
        """Tell whether there is room for a whole group: smaller ones would cost as much and do less.

        What is held leaves in groups, so there will be.
        """
        return self.room() >= self.share()

    def weigh(self, weight: int) -> None:
        """Bound the window in bytes by what an element weighs; of those that differ by the heavier ones."""
        if not self.weight < 2 * weight <= 2 * self.weight:
            self.weight = weight
        wanted = min(self.wanted() * self.weight, MOST_BYTES)
        self.most = max(1, min(self.part.claim(wanted, self.weight), MOST_BYTES) // self.weight)

    def admit(self, block: Block) -> None:
        """Cut a block into groups, small enough that no worker idles."""
        self.held += len(block)
        if not self.known:
            self.weigh(weight_of(block))
        size = min(self.share(), -(-len(block) // self.lanes.workers))
        for start in range(0, len(block), size):
            group = Group(block.part(start, start + size))
            if self.ordered:
                self.groups.append(group)
            else:
                self.pending[group] = None
                self.last = group.block.tickets
            self.lanes.submit(group, self.finished)

    def finished(self, group: Group) -> None:
        """Take note of a group that is done; from any thread."""
        if not self.ordered:
            self.ready.append(group)
        if self.reader.armed:
            self.reader.notify()

    def may_read(self) -> bool:
        if self.ready or (self.groups and self.groups[0].done):
            return True
        return self.ended and self.held == 0

    async def collect(self, limit: int) -> Block | None:
        """Return the results of groups that may be delivered now, until there are `limit`; `None` at the end."""
        self.lanes.read(not self.may_read())
        await self.reader.until(self.may_read)
        queue = self.groups if self.ordered else self.ready
        done: list[Block] = []
        while limit > 0 and queue and queue[0].done:
            error = queue[0].error
            if error is not None:
                if done:
                    break
                raise error
            group = queue.popleft()
            self.pending.pop(group, None)
            self.held -= len(group.block)
            limit -= len(group.result)
            self.known = True
            if group.result.items:
                self.weigh(weight_of(group.block) + weight_of(group.result))
                done.append(group.result)
            else:
                self.weigh(weight_of(group.block))
        self.feeder.notify()
        if done:
            return self.out(Block.join(done))
        return None if self.ended and self.held == 0 else Block([])

    def out(self, block: Block) -> Block:
        """Return what leaves the window, with what is needed to go on after it where it is out of order."""
        if self.ordered:
            return block
        missing = [group.block.tickets for group in self.pending]
        return Block(block.items, Arrived(block.tickets, self.last, missing), block.failed)


def weight_of(block: Block) -> int:
    """Return about how many bytes an element of a block has, which may be a block of elements itself."""
    first = block.items[0]
    return len(first) * weight_of(first) + 100 if type(first) is Block else nbytes(first)
