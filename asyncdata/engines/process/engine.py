"""The engine of `placement="process"`: it has a run in another process for its consumer."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from asyncdata.engines.base import END_TIMEOUT, RunSpec, wait_in_thread, wait_on_loop
from asyncdata.engines.process.client import client_of
from asyncdata.engines.process.guarded_elements import transfer_of
from asyncdata.engines.process.protocol import RunRequest, StatisticsQuery, Stop
from asyncdata.engines.process.remote_queue import GoneError, RemoteBlockQueue, RunReference
from asyncdata.engines.stall import PATIENT, Patience
from asyncdata.executors.process.imports import current_folder
from asyncdata.graph.node import Node
from asyncdata.observe.statistics import EngineStatistics
from asyncdata.options import Options
from asyncdata.runtime import forks
from asyncdata.runtime.queue import BlockQueue
from asyncdata.runtime.sigint import DeferredInterrupts

__all__ = ("ProcessEngine",)


class ProcessEngine:
    """Runs a pipeline in a process of its own, which stays for later epochs of the same plan."""

    def __init__(self, plan: Node, options: Options, run: RunSpec) -> None:
        folder = current_folder()
        self.client = client_of(plan)
        process = self.client.process
        course = RunReference(process, next(process.numbers), run.start, run.plan.in_order, transfer_of(plan))
        self.queue: BlockQueue = (line := RemoteBlockQueue(course))
        self.line = line
        self.order = RunRequest(options, run.epoch[0], run.start.position_with_skip(), folder)
        weakref.finalize(self, process.forget, course.run).atexit = False
        forks.register(self)

    def start(self) -> None:
        self.client.process.begin(self.line, self.order)

    def disown(self) -> None:
        """Leave the run to the parent in a forked child."""
        forks.never_finalize(self)

    def wait(self, ready: Callable[[], object], interrupts: DeferredInterrupts, patience: Patience) -> None:
        wait_in_thread(self.queue, ready, interrupts, PATIENT)  # the process itself logs where it waits

    async def wait_async(self, ready: Callable[[], object], patience: Patience) -> None:
        await wait_on_loop(self.queue, ready, PATIENT)

    def at_work(self) -> tuple[list[threading.Thread], list[asyncio.Task[Any]]]:
        return [], []

    def stats(self) -> EngineStatistics | None:
        """Return what the steps have done there so far; `None` if the process has ended."""
        with suppress(GoneError):
            answer = self.line.course.post.ask(self.line.course.run, StatisticsQuery())
            return answer if isinstance(answer, EngineStatistics) else None
        return None

    def notify(self) -> None:
        self.queue.reader.notify()

    def stop(self, reason: str | None = None) -> None:
        self.queue.stop(reason)
        self.line.course.post.send(Stop(self.line.course.run))

    def join(self) -> None:
        self.line.over.wait(END_TIMEOUT)

    async def join_async(self) -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        self.line.on_over = lambda: loop.call_soon_threadsafe(ended.set)
        if not self.line.over.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), END_TIMEOUT)
