"""DeviceEngine: copies the elements of another engine to a device, ahead of the consumer."""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any, Final

from asyncdata.devices.base import Device
from asyncdata.devices.copy_thread import CopyThread, Pause, Task
from asyncdata.devices.queue import DeviceQueue
from asyncdata.engines.base import END_TIMEOUT, Engine
from asyncdata.engines.stall import Patience
from asyncdata.errors import StageError
from asyncdata.runtime.queue import AT_EXIT, BlockQueue
from asyncdata.statistics.statistics import EMPTY, EngineStatistics, StepStatistics
from asyncdata.system import forks
from asyncdata.system.sigint import DeferredInterrupts
from asyncdata.system.signal_handlers import start_thread
from asyncdata.transforms.prefetch_to_device import PrefetchToDevice

__all__ = ("DeviceEngine",)


class DeviceEngine:
    """Copies the elements of another engine to a device.

    The consumer's thread passes the elements of the other engine to the `CopyThread`. So the pipeline runs where the
    other engine runs it, in each placement.
    """

    def __init__(self, host: Engine, device: Device, node: PrefetchToDevice) -> None:
        self.host = host
        tasks: SimpleQueue[Task] = SimpleQueue()
        self.ahead = DeviceQueue(host, device, node, tasks)
        self.queue: BlockQueue = self.ahead
        self.copy_thread = CopyThread(device, self.queue, tasks, node)

    def start(self) -> None:
        ENGINES.add(self)
        THREADS.difference_update([thread for thread in THREADS if thread.ident and not thread.is_alive()])
        THREADS.add(self.copy_thread.thread)
        forks.register(self)
        try:
            start_thread(self.copy_thread.thread)
        except RuntimeError as error:  # no thread can be started
            THREADS.discard(self.copy_thread.thread)
            self.queue.finish(error)
            raise

    def disown(self) -> None:
        """Leave the device to the parent in a forked child."""
        ENGINES.discard(self)
        THREADS.discard(self.copy_thread.thread)
        self.queue.stopped = True
        forks.never_finalize(self)

    def wait(self, ready: Callable[[], object], interrupts: DeferredInterrupts, patience: Patience) -> None:
        self.host.wait(lambda: self.ahead.advance() or ready(), interrupts, patience)

    async def wait_async(self, ready: Callable[[], object], patience: Patience) -> None:
        await self.host.wait_async(lambda: self.ahead.advance() or ready(), patience)

    def at_work(self) -> tuple[list[threading.Thread], list[asyncio.Task[Any]]]:
        threads, tasks = self.host.at_work()
        return [*threads, self.copy_thread.thread], tasks

    def stats(self, host: EngineStatistics) -> EngineStatistics:
        """Return the statistics of the pipeline with this step, which may work longer than the others."""
        step = self.own_step(len(host.steps) - 1)
        return host._replace(steps=(*host.steps, step), seconds=max(host.seconds, self.copy_thread.seconds))

    def own_step(self, host: int) -> StepStatistics:
        """Return the statistics of copying; `host` is the index of the step that it reads."""
        copier = self.copy_thread
        return EMPTY._replace(
            step=copier.label,
            items=self.queue.written,
            failed=copier.failed + self.ahead.failed,
            worker_seconds=copier.worked,
            workers=1,
            queued=self.queue.held,
            queue_size=copier.most,
            kind="device",
            inputs=(host,),
        )

    def notify(self) -> None:
        self.host.notify()

    def stop(self, reason: str | None = None) -> None:
        self.queue.stop(reason)
        self.host.stop(reason)
        self.copy_thread.tasks.put(None)
        if (pause := self.copy_thread.pause) is not None:
            pause.over.put(None)

    def join(self) -> None:
        self.host.join()
        if threading.current_thread() is not self.copy_thread.thread:
            self.copy_thread.thread.join(END_TIMEOUT)

    async def join_async(self) -> None:
        await self.host.join_async()
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        self.copy_thread.on_end = lambda: loop.call_soon_threadsafe(ended.set)
        if not self.copy_thread.over:
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), END_TIMEOUT)

    @contextmanager
    def paused(self) -> Generator[None]:
        """Suspend copies and all use of the device by other threads within the block."""
        if self.ahead.paused:
            raise StageError("paused() is entered already: leave it first")
        self.copy_thread.pause = pause = Pause()
        self.copy_thread.tasks.put(pause)
        if self.copy_thread.over:
            pause.reached.put(None)
        pause.reached.get()
        self.ahead.paused = True
        try:
            yield
        finally:
            self.ahead.paused = False
            pause.over.put(None)


ENGINES: Final[weakref.WeakSet[DeviceEngine]] = weakref.WeakSet()
THREADS: Final[set[threading.Thread]] = set()
"""The copy threads, also of engines that were dropped, until they have ended: the last thing that they release is
device memory."""


@atexit.register
def end_engines() -> None:
    """Stop running engines at the interpreter's exit, when no thread may be inside a device's library."""
    deadline = time.monotonic() + END_TIMEOUT
    for engine in list(ENGINES):
        engine.stop(AT_EXIT)
    for thread in list(THREADS):
        if thread.ident is not None:
            thread.join(max(0.0, deadline - time.monotonic()))
