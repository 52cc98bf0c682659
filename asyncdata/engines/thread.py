"""Engines that run a pipeline on a thread of its own, with an event loop or, if it needs none, without."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack, aclosing, suppress
from contextvars import copy_context
from functools import cache
from typing import Any, Final

from asyncdata.engines.base import END_TIMEOUT, RunSpec, call_if_open, wait_in_thread, wait_on_loop
from asyncdata.engines.no_loop import driven
from asyncdata.engines.pipeline import blame_state
from asyncdata.engines.stall import Patience
from asyncdata.executors.leaving import LEAVING
from asyncdata.executors.scope import LooplessScope, OwnedTask
from asyncdata.graph.node import nodes_of
from asyncdata.memory.buffer_pool import keep_memory_warm
from asyncdata.memory.memcpy import HELP
from asyncdata.runtime.block import Demand
from asyncdata.runtime.queue import AT_EXIT, BlockQueue, LoopQueue, LoopSignal, ThreadQueue, ThreadSignal
from asyncdata.system import forks
from asyncdata.system.host_resources import lock_is_held, usable_cores
from asyncdata.system.sigint import DeferredInterrupts
from asyncdata.system.signal_handlers import start_thread

__all__ = ("new_loop", "thread_engine")


def thread_engine(run: RunSpec, consumer_loop: asyncio.AbstractEventLoop | None) -> ThreadEngine:
    """Return the engine for a plan on a thread: without an event loop if possible, which costs half as much to
    start."""
    looped = any(node.needs_loop for node in nodes_of(run.plan))
    return LoopThreadEngine(run, consumer_loop) if looped else LooplessThreadEngine(run)


class ThreadEngine:
    """Runs a pipeline on a daemon thread, so that neither side can stall the other."""

    def __init__(self, queue: BlockQueue, owned: OwnedTask) -> None:
        self.queue = queue
        self.owned = owned
        self.context = copy_context()
        self.over = self.forked = False
        self.on_end: Callable[[], object] | None = None
        self.begun = threading.Lock()  # taken once, by the thread, or by the caller that ends this before it runs
        self.thread = threading.Thread(target=self.main, name="asyncdata-engine", daemon=True)

    def start(self) -> None:
        """Start; only after its owner, which ends it, holds it, since Ctrl-C may come as soon as the thread runs."""
        ENGINES.add(self)
        forks.register(self)
        try:
            start_thread(self.thread)
        except RuntimeError as error:  # there can be no more threads
            self.queue.finish(error)
            raise

    def disown(self) -> None:
        """Leave the pipeline as it is in a forked child: its thread is not there, and its loop is the parent's."""
        ENGINES.discard(self)
        self.queue.stopped = self.forked = True
        forks.never_finalize(self)

    def main(self) -> None:
        """The thread: run the pipeline, then wait for the threads that it started."""
        try:
            if self.begun.acquire(blocking=False):
                self.serve()
        except BaseException as error:  # SystemExit from a user's function reaches the consumer
            self.queue.finish(error)
        finally:
            self.owned.stop()
            self.owned.join()
            self.queue.finish()
            self.over = True
            if self.on_end is not None:
                with suppress(RuntimeError):  # the consumer's loop has been closed
                    self.on_end()

    def serve(self) -> None:
        """Run the pipeline in this thread."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Tell the running pipeline that its consumer has left; from any thread, also from a finalizer."""
        raise NotImplementedError

    def wait(self, ready: Callable[[], object], interrupts: DeferredInterrupts, patience: Patience) -> None:
        wait_in_thread(self.queue, ready, interrupts, patience)

    async def wait_async(self, ready: Callable[[], object], patience: Patience) -> None:
        await wait_on_loop(self.queue, ready, patience)

    def at_work(self) -> tuple[list[threading.Thread], list[asyncio.Task[Any]]]:
        return [self.thread, *self.owned.threads], []

    def notify(self) -> None:
        self.queue.reader.notify()

    def stop(self, reason: str | None = None) -> None:
        self.queue.stop(reason)
        self.owned.left.say()
        if not self.begun.acquire(blocking=False):  # else interrupted, or left by another thread, before it began
            self.cancel()

    def join(self) -> None:
        if self.thread.ident is not None and threading.current_thread() is not self.thread:
            self.thread.join(END_TIMEOUT)

    async def join_async(self) -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        self.on_end = lambda: loop.call_soon_threadsafe(ended.set)
        if not self.over:
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), END_TIMEOUT)


ENGINES: Final[weakref.WeakSet[ThreadEngine]] = weakref.WeakSet()


@atexit.register
def end_engines() -> None:
    """End pipelines that still run when the interpreter exits, before modules and threads are torn down."""
    deadline = time.monotonic() + END_TIMEOUT
    engines = list(ENGINES)
    for engine in engines:
        engine.stop(AT_EXIT)
    for engine in engines:
        if engine.thread.ident is not None:
            engine.thread.join(max(0.0, deadline - time.monotonic()))


class LoopThreadEngine(ThreadEngine):
    """Runs a pipeline on an event loop of its own."""

    def __init__(self, run: RunSpec, consumer_loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.signal = LoopSignal(threadsafe=True)
        queue = LoopQueue(run.depth, self.signal, ThreadSignal())
        self.pipeline = run.pipeline(queue, consumer_loop)
        super().__init__(queue, self.pipeline.owned)

    def serve(self) -> None:
        """Run the pipeline on a loop, and close that; each time that a loop is run again costs as much as a block.

        The loop is made in this thread, where no signal handler can raise before the loop has an owner.
        """
        self.pipeline.meters.clock.set_dedicated()
        self.loop = loop = self.signal.loop = new_loop()
        runner, clean = asyncio.Runner(loop_factory=lambda: loop), False
        try:
            clean = runner.run(self.run_all(), context=self.context)
        finally:
            if not self.forked:  # by a function that it called
                loop.close() if clean else runner.close()

    async def run_all(self) -> bool:
        """Run the pipeline and end the loop, unless tasks are left there; return whether it was ended."""
        await self.pipeline.run()
        if len(asyncio.all_tasks()) > 1:
            return False
        loop = asyncio.get_running_loop()
        await loop.shutdown_asyncgens()
        await loop.shutdown_default_executor()
        return True

    def at_work(self) -> tuple[list[threading.Thread], list[asyncio.Task[Any]]]:
        threads, _ = super().at_work()
        return threads, [] if self.loop is None or self.loop.is_closed() else [*asyncio.all_tasks(self.loop)]

    def cancel(self) -> None:
        if self.loop is not None:  # else the pipeline finds that its queue is no longer read
            call_if_open(self.loop, self.pipeline.cancel)


class LooplessThreadEngine(ThreadEngine):
    """Runs a pipeline without an event loop, if no step needs one."""

    def __init__(self, run: RunSpec) -> None:
        keep_memory_warm()
        self.run = run
        self.ends: list[Callable[[], object]] = []
        self.space = (queue := ThreadQueue(run.depth, ThreadSignal())).wait_for_capacity
        run.meters.output.buffers(queue)
        super().__init__(queue, OwnedTask(run.budget))

    def serve(self) -> None:
        """Run the pipeline, whose error travels through the queue."""
        clock = self.run.meters.clock
        clock.set_dedicated()
        clock.begin()
        try:
            self.context.run(driven, self.fill(), self.interruption)
        except BaseException as error:
            self.queue.finish(None if self.queue.stopped else blame_state(error, self.run.start))
        finally:
            clock.end()

    async def fill(self) -> None:
        """Read the plan into the queue while the queue has space."""
        LEAVING.set(self.owned.left)
        if usable_cores() > 1:
            HELP.set(self.owned.copier)
        want, scope = Demand(), LooplessScope(self.run.epoch, self.left, self.ends, self.run.meters)
        scope.reads_ahead = self.run.depth.items != 0
        async with aclosing(self.run.plan.open(scope, want, self.run.start)) as source:
            while space := self.space():
                want.items, begin = space, time.perf_counter()
                block = await anext(source, None)
                if block is None:
                    self.queue.finish_complete()
                    return
                self.queue.put(block, time.perf_counter() - begin)
                block = None

    def left(self) -> bool:
        return self.queue.stopped

    def interruption(self) -> BaseException | None:
        """Return the error that ends the pipeline where it would yield to other tasks, if its consumer has left."""
        return asyncio.CancelledError() if self.queue.stopped else None

    def cancel(self) -> None:
        """Interrupt long calls; the other steps find that the queue is no longer read."""
        for end in [*self.ends]:
            with suppress(Exception):  # it has ended already
                end()


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: uvloop's where it is installed."""
    try:
        with forks.IMPORTING:
            import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    check_descriptors()
    return uvloop.new_event_loop() if lock_is_held() else guarded_loop()()


NEEDED: Final = 4
"""How many pairs of descriptors must be left for a first loop of uvloop, which opens a few more than it keeps."""


@cache
def check_descriptors() -> None:
    """Raise `OSError` if so few files can be opened that libuv would abort the process when it makes its first loop."""
    with ExitStack() as opened:
        for _ in range(NEEDED):
            for descriptor in os.pipe():
                opened.callback(os.close, descriptor)


@cache
def guarded_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return uvloop's loop for threads that do not take turns.

    One that is closed while another thread wakes it ends the process with a segmentation fault.
    """
    import uvloop

    class Loop(uvloop.Loop):
        def __init__(self) -> None:
            super().__init__()
            self.turn = threading.RLock()  # a finalizer that runs while it is held may wake the loop too

        def call_soon_threadsafe(self, *args: Any, **kwargs: Any) -> asyncio.Handle:
            with self.turn:
                return super().call_soon_threadsafe(*args, **kwargs)

        def close(self) -> None:
            with self.turn:
                super().close()

    return Loop
