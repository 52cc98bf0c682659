"""Engines: where a pipeline runs, and how its consumer waits for it.

`TaskEngine` runs it on the consumer's event loop, `LoopEngine` on a private one that runs only while a plain consumer
waits; those with a thread of their own are in `threads`.

Reasons and measurements: docs/design.md, "Engines, signals and exit".
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from asyncdata.engines.pipeline import Pipeline
from asyncdata.engines.stall import LoopWatch, Patience
from asyncdata.errors import StageError
from asyncdata.graph.node import Node, nodes_of
from asyncdata.memory.output_buffers import without_output_buffers
from asyncdata.runtime.memory_budget import MemoryBudget
from asyncdata.runtime.meter import Meters
from asyncdata.runtime.queue import BlockQueue, BufferSize, LoopQueue, LoopSignal, ThreadSignal, clock_of
from asyncdata.runtime.tickets import Start
from asyncdata.system import forks
from asyncdata.system.sigint import DeferredInterrupts, DeferredSigint
from asyncdata.system.signal_handlers import DeferredHandlers, start_thread
from asyncdata.transforms.prefetch import Prefetch

__all__ = (
    "END_TIMEOUT",
    "Engine",
    "LoopEngine",
    "RunSpec",
    "StopSignal",
    "TaskEngine",
    "call_if_open",
    "running_loop",
    "wait_in_thread",
    "wait_on_loop",
)

CANCELLED: Final = "the task that ran the pipeline was cancelled"

END_TIMEOUT: Final = 1.0


class RunSpec(NamedTuple):
    """A run of an engine: the plan, the size of its consumer's buffer, the epoch, where to start, its budget."""

    full_plan: Node
    """With the prefetch that is the consumer's buffer."""
    plan: Node
    depth: BufferSize
    epoch: tuple[Any, ...]
    start: Start
    budget: MemoryBudget
    meters: Meters
    seed: int | None = None
    """Of the global generators of worker processes."""

    @staticmethod
    def of(plan: Node, epoch: int, start: Start, ram_budget: int | None, seed: int | None = None) -> RunSpec:
        """Return how a plan is run: its last prefetch is the consumer's buffer."""
        rest, items = (plan.input, plan.buffer_size) if isinstance(plan, Prefetch) else (plan, 0)
        budget = MemoryBudget(ram_budget)
        depth = BufferSize(items, budget.share())
        budget.buffers[plan] = depth.stats
        return RunSpec(plan, rest, depth, (epoch,), start, budget, Meters(tuple(nodes_of(rest))), seed)

    def pipeline(self, queue: LoopQueue, consumer_loop: asyncio.AbstractEventLoop | None) -> Pipeline:
        return Pipeline(self.plan, queue, self.epoch, consumer_loop, self.start, self.budget, self.meters, self.seed)


class Engine(Protocol):
    """A running pipeline as its consumer sees it."""

    @property
    def queue(self) -> BlockQueue:
        """The queue that the pipeline writes to."""
        ...

    def start(self) -> None:
        """Start; once, and only after its owner, which ends it, holds it. A signal handler may raise meanwhile."""
        ...

    def wait(self, ready: Callable[[], object], interrupts: DeferredInterrupts, patience: Patience) -> None:
        """Block until `ready()`, or until Ctrl-C."""
        ...

    async def wait_async(self, ready: Callable[[], object], patience: Patience) -> None:
        """Wait until `ready()` without blocking the consumer's loop."""
        ...

    def notify(self) -> None:
        """Wake a consumer that waits for another thread; from any thread, also from a finalizer."""
        ...

    def stop(self, reason: str | None = None) -> None:
        """Ask the pipeline to end, and why; from any thread, also from a finalizer."""
        ...

    def join(self) -> None:
        """Wait until it has ended, for at most a second: a user's function that blocks cannot be stopped."""
        ...

    async def join_async(self) -> None:
        """Wait as `join` does, without blocking the consumer's loop."""
        ...

    def at_work(self) -> tuple[list[threading.Thread], list[asyncio.Task[Any]]]:
        """Return the threads and tasks of this process that run the pipeline now."""
        ...


def wait_in_thread(
    queue: BlockQueue, ready: Callable[[], object], interrupts: DeferredInterrupts, patience: Patience
) -> None:
    """Block until a queue that another thread writes to is `ready()`, or until Ctrl-C."""
    signal = queue.reader
    if not isinstance(signal, ThreadSignal):
        signal = queue.reader = ThreadSignal()
    interrupts.to_stop(partial(signal.gate.put, None))
    signal.until(lambda: ready() or interrupts.came, patience.seconds, patience.report)


async def wait_on_loop(queue: BlockQueue, ready: Callable[[], object], patience: Patience) -> None:
    """Wait, on the consumer's loop, until a queue that another thread writes to is `ready()`."""
    signal, loop = queue.reader, asyncio.get_running_loop()
    if not isinstance(signal, LoopSignal) or signal.loop is not loop:
        signal = queue.reader = LoopSignal(loop, threadsafe=True)
    await until_on_loop(signal, ready, patience)


async def until_on_loop(signal: LoopSignal, ready: Callable[[], object], patience: Patience) -> None:
    """Wait until `ready()`, and lose patience in time."""
    timer = patience.timer(signal.loop)
    try:
        await signal.until(ready)
    finally:
        if timer is not None:
            timer.cancel()


class TaskEngine:
    """Runs a pipeline as a task of the consumer's own event loop."""

    def __init__(self, run: RunSpec) -> None:
        self.loop = asyncio.get_running_loop()
        run.meters.clock.now = clock_of(self.loop)
        self.signal = LoopSignal(self.loop)
        self.queue = LoopQueue(run.depth, LoopSignal(self.loop), self.signal)
        self.pipeline = run.pipeline(self.queue, self.loop)
        self.watch = LoopWatch(self.loop, self.pipeline.owned)
        self.task: asyncio.Task[None] | None = None
        forks.register(self)

    def start(self) -> None:
        self.task = self.loop.create_task(self.pipeline.run(), name="asyncdata-pipeline")
        self.task.add_done_callback(self.done)

    def disown(self) -> None:
        """Leave the pipeline as it is in a forked child: its loop is the parent's."""
        self.queue.stopped = True
        forks.never_finalize(self)

    def done(self, task: asyncio.Task[None]) -> None:
        """Report to a consumer that continues after all tasks of its loop were cancelled."""
        self.queue.finish(StageError(CANCELLED) if task.cancelled() else None)
        self.pipeline.owned.over.say()  # nothing did, if it had not started to run

    def wait(self, ready: Callable[[], object], interrupts: DeferredInterrupts, patience: Patience) -> None:
        raise StageError(
            "this iterator was started with `async for` and placement='current': its pipeline runs on that event "
            "loop, where a plain next() would wait for ever; use `async for`, or Options(placement='thread')"
        )

    async def wait_async(self, ready: Callable[[], object], patience: Patience) -> None:
        self.watch.begin(patience)
        try:
            await self.signal.until(ready)
        finally:
            self.watch.end()

    def notify(self) -> None:
        call_if_open(self.loop, self.signal.notify)

    def stop(self, reason: str | None = None) -> None:
        self.queue.reason = reason or self.queue.reason
        call_if_open(self.loop, self.pipeline.cancel)

    def join(self) -> None:
        """Return at once: the task ends on its loop, which this call may not block."""

    def at_work(self) -> tuple[list[threading.Thread], list[asyncio.Task[Any]]]:
        return self.watch.threads, pipeline_tasks(self.loop, self.task)

    async def join_async(self) -> None:
        if self.task is not None and not self.task.done():  # with the loop that it was started on, perhaps another one
            self.pipeline.cancel()
            await asyncio.wait([self.task], timeout=END_TIMEOUT)
        await self.pipeline.owned.join_async()


class StopSignal:
    """Stops a loop that runs while its consumer waits: a task that waits there would cost three turns of it."""

    __slots__ = ("armed", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.armed = False

    def until(self, ready: Callable[[], object]) -> None:
        """Run the loop until `ready()`."""
        try:
            while not ready():
                self.armed = True
                self.loop.run_forever()
        finally:
            self.armed = False

    def notify(self) -> None:
        if self.armed:
            self.armed = False
            self.loop.stop()


class LoopEngine:
    """Runs a pipeline on a private event loop, in the consumer's thread, while the consumer waits."""

    loop: asyncio.AbstractEventLoop
    signal: StopSignal
    queue: LoopQueue
    pipeline: Pipeline
    watch: LoopWatch

    def __init__(self, run: RunSpec) -> None:
        forbid_running_loop()
        self.run = run
        self.stopping = self.interrupted = False
        self.turn = threading.Lock()  # held by the thread that runs the loop
        self.ender: threading.Thread | None = None
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        with DeferredHandlers(), self.turn:
            self.loop = asyncio.new_event_loop()  # not uvloop's, which Ctrl-C in the main thread can leave unusable
            self.signal = StopSignal(self.loop)
            self.queue = LoopQueue(self.run.depth, LoopSignal(self.loop), self.signal)
            self.pipeline = self.run.pipeline(self.queue, None)
            self.watch = LoopWatch(self.loop, self.pipeline.owned)
            forks.register(self)
            self.task = self.loop.create_task(self.run_all(), name="asyncdata-pipeline")

    def disown(self) -> None:
        """Leave the loop as it is in a forked child: closing it would change what the parent's loop waits for."""
        self.queue.stopped = self.stopping = True
        forks.never_finalize(self)

    async def run_all(self) -> None:
        """Run the pipeline, then end async generators that are left: another run of the loop would cost more."""
        try:
            await self.pipeline.run()
        finally:
            self.queue.finish(StageError(CANCELLED))
            await self.loop.shutdown_asyncgens()

    def wait(self, ready: Callable[[], object], interrupts: DeferredInterrupts, patience: Patience) -> None:
        forbid_running_loop()
        handlers = DeferredHandlers(self.break_off)
        with handlers, self.turn:  # in this order, as Python 3.14 may call handlers before `with` protects the lock
            if self.stopping:  # by another thread
                return
            interrupts.to_stop(self.break_off)
            self.watch.begin(patience)
            try:
                with without_output_buffers():
                    self.signal.until(lambda: ready() or interrupts.came or handlers.came)
            except BaseException:  # Ctrl-C, while a user's function ran
                self.interrupted = True
                raise
            finally:
                self.watch.end()

    def break_off(self) -> None:
        """Stop the loop, for a signal that came while it ran, or just before or after."""
        self.interrupted = True
        call_if_open(self.loop, self.loop.stop)

    def settle(self) -> None:
        """Let the loop stop once if it was interrupted just before it stopped: else it would stop in its next run."""
        if self.interrupted:
            self.run_once()
            self.interrupted = False

    def run_once(self) -> None:
        """Run the callbacks that are ready on the loop."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    async def wait_async(self, ready: Callable[[], object], patience: Patience) -> None:
        raise StageError("this iterator was started with a plain `for` and placement='current': continue with `for`")

    def notify(self) -> None:
        call_if_open(self.loop, self.signal.notify)

    def stop(self, reason: str | None = None) -> None:
        """End the pipeline: here, or in a thread where another loop is running in this one, or this loop in another."""
        if sys.is_finalizing() or self.stopping:
            return
        if self.task is None:
            self.stop_unstarted()
            return
        self.stopping = True
        self.queue.reason = reason or self.queue.reason
        self.pipeline.owned.left.say()
        if running_loop() is None and self.turn.acquire(blocking=False):
            try:
                self.finish(self.task)
            finally:
                self.turn.release()
        else:
            self.ender = threading.Thread(target=self.follow, args=(self.task,), name="asyncdata-end", daemon=True)
            start_thread(self.ender)

    def stop_unstarted(self) -> None:
        """Close the loop if a signal handler has raised in `start`; not while another thread is in it."""
        if self.turn.acquire(blocking=False):
            try:
                self.stopping = True
                if (loop := getattr(self, "loop", None)) is not None:
                    loop.close()
            finally:
                self.turn.release()

    def follow(self, task: asyncio.Task[None]) -> None:
        """Wake a consumer that waits in another thread, and finish when it has released the loop."""
        self.loop.call_soon_threadsafe(self.queue.stop)
        with self.turn:
            self.finish(task)

    def finish(self, task: asyncio.Task[None]) -> None:
        """Cancel the pipeline if it has not ended, wait for its end, and close the loop."""
        with DeferredInterrupts() as interrupts, DeferredSigint(interrupts), DeferredHandlers():
            self.queue.stop()
            self.settle()
            if self.queue.ended:
                self.run_once()
            if not task.done():
                self.loop.run_until_complete(self.end(task))
            self.loop.close()
            self.pipeline.owned.join()

    async def end(self, task: asyncio.Task[None]) -> None:
        self.pipeline.cancel()
        await asyncio.wait([task], timeout=END_TIMEOUT)
        await self.loop.shutdown_asyncgens()

    def join(self) -> None:
        """Wait for another thread to end it, where `stop` could not: this one may not hold up a loop that it runs."""
        if self.ender is not None and running_loop() is None:
            self.ender.join(END_TIMEOUT)

    def at_work(self) -> tuple[list[threading.Thread], list[asyncio.Task[Any]]]:
        return self.watch.threads, pipeline_tasks(self.loop, self.task)

    async def join_async(self) -> None:
        """Return at once: `stop` has seen to it."""


def pipeline_tasks(loop: asyncio.AbstractEventLoop, first: asyncio.Task[Any] | None) -> list[asyncio.Task[Any]]:
    """Return the task of a pipeline and those that it started, on a loop that others may use too."""
    others = [task for task in asyncio.all_tasks(loop) if task.get_name().startswith("asyncdata")]
    return others if first is None or first in others else [first, *others]


def call_if_open(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    """Schedule a call on a loop, from any thread; do nothing if the loop is closed, as all its tasks have ended."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        if not loop.is_closed():  # raised by a signal handler
            raise


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, if there is one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def forbid_running_loop() -> None:
    if running_loop() is not None:
        raise StageError(
            "a plain `for` with placement='current' cannot run inside a running event loop: "
            "use `async for`, or Options(placement='thread')"
        )
