"""Workers: several threads or tasks that run groups of elements at once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, ClassVar, Final

from asyncdata.executors.function_call import ChunkSizer, Deadline, never
from asyncdata.executors.function_times import FunctionKey
from asyncdata.executors.group_work import Done, GroupWork
from asyncdata.executors.limiter import Limiter
from asyncdata.executors.scope import Scope
from asyncdata.executors.thread_sharing import StageThreads
from asyncdata.runtime.block import Block
from asyncdata.runtime.queue import LoopSignal, now_on
from asyncdata.runtime.retry_count import RETRIED
from asyncdata.system.thread_usage import ThreadUsage

__all__ = ("Group", "RemoteExecutor", "TaskWorkers", "ThreadWorkers", "Workers")

THREAD_GROUP: Final = 5e-4

MANY: Final = 256
MANY_SECONDS: Final = 0.02


class Group:
    """Elements that one worker processes together.

    When it is done, `result` has the outcome of the first `count`: of all, unless some took so long that the others
    were given up.
    """

    __slots__ = (
        "asked",
        "away",
        "blocked",
        "count",
        "cpu",
        "done",
        "ended",
        "error",
        "functions",
        "inline",
        "lane",
        "pauses",
        "queued",
        "recalled",
        "result",
        "retries",
        "seconds",
        "what",
    )

    result: Block

    def __init__(self, what: Block) -> None:
        self.what = what
        self.count = what.count
        self.done = self.recalled = False
        self.error: BaseException | None = None
        self.seconds = (
            0.0  # that its work took; those that it computed; those that it could have, had there been a core
        )
        self.cpu = self.queued = 0.0
        self.away = 0.0  # seconds that it computed in another process, which are not in `cpu`
        self.inline = False  # whether it was worked on in the engine's thread
        self.ended = 0.0  # when that was; in which thread, task or process
        self.lane = 0
        self.retries = 0  # how many calls were made again, if that was in another process
        self.functions: dict[FunctionKey, float] | None = None  # seconds of each of several functions, if there
        self.asked = False  # whether the system was asked for `queued` and for `pauses`
        self.pauses = 0  # how often its thread gave up its core voluntarily
        self.blocked = 0.0  # how many seconds its thread waited for the interpreter lock; 0 if that was not measured

    @property
    def given_up(self) -> bool:
        """Whether elements were left."""
        return self.count < self.what.count

    @property
    def succeeded(self) -> bool:
        """Whether all elements have results, of which none is a failure."""
        return self.error is None and self.count == self.what.count and not self.result.failed

    def work(
        self, attempt: Callable[[Block, Deadline], Done], pace: ChunkSizer, dropped: Callable[[], bool] = never
    ) -> None:
        """Call functions over the elements, right here, and give up those that it takes too long for, or all once they
        are dropped."""
        begin = time.perf_counter()
        try:
            self.result, self.count = attempt(self.what, pace.term(dropped))
        except BaseException as error:  # SystemExit and the like end the pipeline, when its turn comes
            self.error = error
        self.ended, self.lane = time.perf_counter(), threading.get_ident()
        self.seconds = self.ended - begin
        pace.measured(self.count, self.seconds)


class Workers:
    """Where groups run: `finished` is called for each group, from any thread."""

    pace: ChunkSizer
    count: int

    in_order = False
    """Whether calls are made in the order of the elements, as one worker alone makes them."""

    late = False
    """Whether work was given up, which comes before all groups submitted since."""

    tuned = False
    """Whether AUTOTUNE chooses how many workers there are: then there may also be fewer groups than keep them busy."""

    @property
    def trying(self) -> bool:
        """Whether AUTOTUNE measures groups, which should then not take long."""
        return False

    def submit(self, group: Group, finished: Callable[[Group], None]) -> None:
        """Have a worker process `group`."""
        raise NotImplementedError

    def read(self, waited: float) -> None:
        """Record that the reader has requested results, and for how many seconds it waited for them."""

    def finish(self) -> None:
        """Release what is no longer needed when the groups submitted so far are done."""

    def stop(self) -> None:
        """Accept no more groups; those in progress may finish."""


class RemoteExecutor:
    """Where groups run that leave this machine."""

    name: ClassVar[str]
    """How labels show it."""

    def workers(self, count: int, work: GroupWork, epoch: tuple[Any, ...], copied: bool) -> Workers:
        """Return `count` workers for a stage's work; results are `copied` if they are held for long."""
        raise NotImplementedError


class ThreadWorkers(Workers):
    """`count` threads that run a plain function over groups of about half a millisecond.

    Workers that take many elements at once get about a hundred, if these take no longer than 20 ms.

    Groups report what they used, at most one in `interval` seconds.
    """

    interval = inf

    def __init__(
        self,
        scope: Scope,
        count: int,
        work: Callable[[Block, Deadline], Done],
        many_at_once: bool = False,
        threads: StageThreads | None = None,
    ) -> None:
        """Call it in these `threads`, or in some of its own."""
        self.pace = ChunkSizer(MANY_SECONDS, MANY) if many_at_once else ChunkSizer(THREAD_GROUP)
        self.retried = scope.meter.retried
        self.work = work
        self.count = count
        self.threads = scope.threads(count, "asyncdata-map") if threads is None else threads
        self.reported = 0.0  # when one of them began last

    def submit(self, group: Group, finished: Callable[[Group], None]) -> None:
        def job() -> None:
            if self.late or group.recalled or self.is_stopped():
                return
            RETRIED.set(self.retried)
            if asked := time.perf_counter() - self.reported >= self.interval:
                self.reported = time.perf_counter()
                group.blocked = blocked() if self.interval else 0.0
            before, computed = ThreadUsage.now() if asked else None, time.thread_time()
            group.work(self.work, self.pace, self.is_stopped)
            self.late = self.in_order and group.given_up
            group.cpu = time.thread_time() - computed
            if before is not None:
                group.asked, (group.cpu, group.queued, group.pauses) = True, before.since(group.count)
            group.done = True
            finished(group)

        self.threads.submit(job)

    def is_stopped(self) -> bool:
        """Return whether no results are wanted any more."""
        return self.threads.stopped

    def finish(self) -> None:
        self.threads.finish()

    def stop(self) -> None:
        self.threads.stop()


def blocked() -> float:
    """Give up the interpreter lock, and return how many seconds it took to get it back."""
    begin = time.perf_counter()
    time.sleep(0)
    return time.perf_counter() - begin


class TaskWorkers(Workers):
    """`count` tasks that await a function on one element each."""

    def __init__(
        self,
        scope: Scope,
        count: int,
        work: Callable[[Block], Awaitable[Block]],
        at_once: Callable[[Block], Block | None] | None = None,
    ) -> None:
        self.pace = ChunkSizer(0.0)
        self.work = work
        self.at_once = at_once
        self.scope = scope
        self.count = count
        self.limit: Limiter | None = None
        """What a task enters before it works."""
        self.waiting: deque[tuple[Group, Callable[[Group], None]]] = deque()
        self.idle: deque[LoopSignal] = deque()
        self.tasks: list[Any] = []

    def submit(self, group: Group, finished: Callable[[Group], None]) -> None:
        if self.at_once is not None and (result := self.at_once(group.what)) is not None:
            group.result, group.done = result, True
            finished(group)
            return
        self.waiting.append((group, finished))
        if self.idle:
            self.idle.popleft().notify()
        elif len(self.tasks) < self.count:
            self.tasks.append(self.scope.spawn(self.work_loop))

    async def work_loop(self) -> None:
        """Work on one group after the other."""
        RETRIED.set(self.scope.meter.retried)
        signal = LoopSignal(self.scope.loop)
        while True:
            while self.waiting:
                group, finished = self.waiting.popleft()
                if self.limit is None:
                    await self.work_on(group)
                else:
                    await self.work_in_turn(group, self.limit)
                group.lane = id(signal)
                group.done = True
                finished(group)
            self.idle.append(signal)
            await signal.until(self.waiting.__len__)

    async def work_in_turn(self, group: Group, limit: Limiter) -> None:
        await limit.enter()
        try:
            await self.work_on(group)
        finally:
            limit.leave()

    async def work_on(self, group: Group) -> None:
        """Await a function on the element of a group."""
        begin = now_on(self.scope.loop)
        try:
            group.result = await self.work(group.what)
        except asyncio.CancelledError:  # this task is to end
            raise
        except BaseException as error:  # SystemExit and the like end the pipeline, when its turn comes
            group.error = error
        group.seconds = now_on(self.scope.loop) - begin
        group.ended = time.perf_counter()

    def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
