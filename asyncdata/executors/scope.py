"""Scope: what a running stage may start (tasks, threads, inner pipelines), and who ends it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, TypeVar

import anyio
from anyio.abc import TaskGroup

from asyncdata.executors.function_call import PoolExecutor, ThreadPool
from asyncdata.executors.leaving import LEAVING, Leaving
from asyncdata.executors.thread_sharing import StageThreads, ThreadSharing
from asyncdata.memory.memcpy import helper_count
from asyncdata.runtime.memory_budget import MemoryBudget
from asyncdata.runtime.meter import Meter, Meters
from asyncdata.runtime.open_files import OpenFiles
from asyncdata.system.host_resources import usable_cores
from asyncdata.system.signal_handlers import start_thread

__all__ = ("EndError", "LooplessScope", "OwnedTask", "Scope")

T = TypeVar("T")

READERS: Final = 8
END_TIMEOUT: Final = 0.8


class EndError(Exception):
    """Carries `SystemExit` or `KeyboardInterrupt` out of a task, as an event loop ends where a task raises these."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class OwnedTask:
    """The threads and foreign tasks of one pipeline: started here, ended and awaited here; and its budget."""

    def __init__(self, budget: MemoryBudget, seed: int | None = None) -> None:
        self.budget = budget
        self.seed = seed
        """Of the global generators of worker processes."""
        self.left, self.over = Leaving(), Leaving()
        """The signal for waiting threads that the consumer has left: in the thread of the stages it comes at once, in
        others when the stages are closed, so that those threads start nothing more."""
        self.threads: dict[threading.Thread, threading.Event] = {}
        """Each with the event that it runs: one whose start a signal handler interrupted may still begin."""
        self.tasks: set[asyncio.Task[None]] = set()
        self.readers = ThreadPool(self.start, READERS, "asyncdata-read")
        self.executor = PoolExecutor(self.readers)
        self.copier = ThreadPool(self.start, helper_count(usable_cores()), "asyncdata-copy")
        self.shared: list[ThreadPool] = []
        """Threads that call functions for several steps."""
        self.open_files = OpenFiles()
        self.sharing = ThreadSharing(self.start)
        """The threads of the stages of a mixture's inputs."""
        self.unstarted: set[Coroutine[Any, Any, None]] = set()
        self.has_spawned = False
        self.emptied: Callable[[], object] | None = None

    def start(self, run: Callable[[], None], name: str) -> None:
        """Start a daemon thread. Daemon, so that a user's function that never returns cannot hold the interpreter."""
        context = self.context()

        def main() -> None:
            begun.set()
            try:
                context.run(run)
            finally:
                self.threads.pop(thread, None)
                if not self.threads and self.emptied is not None:
                    self.emptied()

        thread, begun = threading.Thread(target=main, name=name, daemon=True), threading.Event()
        self.threads[thread] = begun
        start_thread(thread)

    def context(self) -> Context:
        """Return a context for a thread: a copy of the caller's."""
        context = copy_context()
        context.run(LEAVING.set, self.over)
        return context

    def share_threads(self, name: str) -> ThreadPool:
        """Return threads for several steps, one to begin with, which end with the pipeline."""
        self.shared.append(ThreadPool(self.start, 1, name))
        return self.shared[-1]

    def adopt(self, task: asyncio.Task[None]) -> None:
        """Hold a task that runs a user's async iterator until it is done."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def stop(self) -> None:
        """End the shared threads. Work that a shut-down loop has not started will not start."""
        for threads in (self.readers, self.copier, self.sharing, *self.shared):
            threads.stop()
        self.over.say()
        for coroutine in self.unstarted:
            coroutine.close()
        self.unstarted.clear()

    def join(self) -> None:
        """Wait for every thread, in all no longer than a user's function may sensibly take to return."""
        deadline = time.monotonic() + END_TIMEOUT
        for thread, begun in list(self.threads.items()):
            if begun.wait(max(0.0, deadline - time.monotonic())):  # a thread that has not begun cannot be joined
                thread.join(max(0.0, deadline - time.monotonic()))

    async def join_async(self) -> None:
        """Wait as `join` does, without blocking the loop."""
        loop, empty = asyncio.get_running_loop(), asyncio.Event()

        def emptied() -> None:
            with suppress(RuntimeError):  # the loop was closed while a thread was still at work
                loop.call_soon_threadsafe(empty.set)

        self.emptied = emptied
        if self.threads:
            with suppress(TimeoutError):
                await asyncio.wait_for(empty.wait(), END_TIMEOUT)


class Scope:
    """The scope that a stage gets when it is opened. `at` returns one for another epoch or for an inner pipeline."""

    __slots__ = ("consumer_loop", "epoch", "group", "loop", "meter", "meters", "owned", "reads_ahead", "sharing")

    def __init__(
        self,
        group: TaskGroup,
        owned: OwnedTask,
        *,
        epoch: tuple[Any, ...],
        consumer_loop: asyncio.AbstractEventLoop | None,
        meters: Meters,
    ) -> None:
        self.group = group
        self.owned = owned
        self.epoch = epoch
        self.loop = asyncio.get_running_loop()
        self.consumer_loop = consumer_loop or self.loop
        self.meters = meters
        self.meter = meters.output
        """Of the step that is opened."""
        self.reads_ahead = False
        """Whether the consumer's buffer is filled before the consumer asks, so that it keeps what comes too early."""
        self.sharing: ThreadSharing | None = None
        """Where its stages get their threads, if these are many."""

    @property
    def budget(self) -> MemoryBudget:
        """How many bytes the buffers of the pipeline may hold together."""
        return self.owned.budget

    @property
    def executor(self) -> Executor:
        """The pipeline's reader threads."""
        return self.owned.executor

    @property
    def open_files(self) -> OpenFiles:
        return self.owned.open_files

    def at(self, *path: Any) -> Scope:
        """Return this scope one level deeper in epochs: a repetition, or the element an inner pipeline is for."""
        inner = object.__new__(Scope)
        inner.group, inner.owned, inner.loop, inner.consumer_loop = (
            self.group,
            self.owned,
            self.loop,
            self.consumer_loop,
        )
        inner.epoch, inner.meters, inner.meter = self.epoch + path, self.meters, self.meter
        inner.sharing, inner.reads_ahead = self.sharing, self.reads_ahead
        return inner

    def threads(self, count: int, name: str, tuned: bool = False) -> StageThreads:
        """Return at most `count` threads for a stage, which stops them; `tuned` if AUTOTUNE chose that number."""
        if self.sharing is not None:
            return self.sharing.threads(count, name, tuned)
        return ThreadPool(self.owned.start, count, name)

    def sharing_threads(self, inputs: int) -> Scope:
        """Return this scope for so many inputs, of which few are at work at a time: they share threads and memory."""
        inner = self.at()
        self.owned.sharing.inputs += inputs
        inner.sharing = self.owned.sharing
        return inner

    def with_epoch(self, epoch: tuple[Any, ...]) -> Scope:
        inner = self.at()
        inner.epoch = epoch
        return inner

    def with_meter(self, meter: Meter) -> Scope:
        """Return this scope for a step that reports to `meter`."""
        if meter is self.meter:
            return self
        inner = self.at()
        inner.meter = meter
        return inner

    def spawn(self, run: Callable[[], Awaitable[None]]) -> anyio.CancelScope:
        """Start a task in the pipeline's task group; return a function that cancels it."""
        cancel = anyio.CancelScope()

        async def task() -> None:
            self.owned.unstarted.discard(coroutine)
            with cancel:
                try:
                    await run()
                except (SystemExit, KeyboardInterrupt) as error:
                    raise EndError(error) from None

        coroutine = task()
        self.owned.unstarted.add(coroutine)
        self.owned.has_spawned = True
        self.group.start_soon(lambda: coroutine)
        return cancel

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Run a blocking call (reading a file) in one of the pipeline's reader threads."""
        future: asyncio.Future[T] = self.loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)  # type: ignore[arg-type]
            else:
                future.set_exception(error)

        def job() -> None:
            try:
                outcome: tuple[Any, BaseException | None] = (call(), None)
            except BaseException as error:  # carried to the awaiting task
                outcome = (None, error)
            try:
                self.loop.call_soon_threadsafe(settle, *outcome)
            except RuntimeError:  # the pipeline has ended meanwhile
                return

        self.owned.readers.submit(partial(copy_context().run, job))
        return await future


def wanted() -> bool:
    """Return that the consumer has not left."""
    return False


class LooplessScope(Scope):
    """The scope of stages in a thread without a loop, which has no tasks and threads.

    A long call may check whether the consumer has `left`, or is interrupted by one of the `ends`, which another thread
    calls then.
    """

    __slots__ = ("ends", "left")

    def __init__(
        self,
        epoch: tuple[Any, ...],
        left: Callable[[], bool] = wanted,
        ends: list[Callable[[], object]] | None = None,
        meters: Meters | None = None,
    ) -> None:
        self.epoch = epoch
        self.left = left
        self.ends: list[Callable[[], object]] = [] if ends is None else ends
        self.meters = meters or Meters()
        self.meter = self.meters.output
        self.reads_ahead = False

    def at(self, *path: Any) -> Scope:
        inner = LooplessScope(self.epoch + path, self.left, self.ends, self.meters)
        inner.meter, inner.reads_ahead = self.meter, self.reads_ahead
        return inner

    def sharing_threads(self, inputs: int) -> Scope:
        return self
