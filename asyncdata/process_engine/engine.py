"""The engine of `placement="process"`: it has a run in another process for its consumer."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from asyncdata.engines.base import END_TIMEOUT, RunSpec, wait_in_thread, wait_on_loop
from asyncdata.engines.stall import PATIENT, Patience
from asyncdata.executors.process.imports import current_folder
from asyncdata.graph.node import Node
from asyncdata.options import Options
from asyncdata.process_engine.client import client_of
from asyncdata.process_engine.guarded_elements import transfer_of
from asyncdata.process_engine.protocol import RunRequest, StatisticsQuery, StopRun
from asyncdata.process_engine.remote_queue import GoneError, RemoteBlockQueue, RunReference
from asyncdata.runtime.queue import BlockQueue
from asyncdata.statistics.statistics import EngineStatistics
from asyncdata.system import forks
from asyncdata.system.sigint import DeferredInterrupts

__all__ = ("ProcessEngine",)


class ProcessEngine:
    """Runs a pipeline in a process of its own, which stays for later epochs of the same plan."""

    def __init__(self, plan: Node, options: Options, run: RunSpec) -> None:
        folder = current_folder()
        self.client = client_of(plan)
        process = self.client.process
        reference = RunReference(process, next(process.numbers), run.start, run.plan.in_order, transfer_of(plan))
        self.queue: BlockQueue = (remote := RemoteBlockQueue(reference))
        self.remote = remote
        self.order = RunRequest(options, run.epoch[0], run.start.position_with_skip(), folder)
        weakref.finalize(self, process.forget, reference.run).atexit = False
        forks.register(self)

    def start(self) -> None:
        self.client.process.begin(self.remote, self.order)

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
            answer = self.remote.reference.target.ask(self.remote.reference.run, StatisticsQuery())
            return answer if isinstance(answer, EngineStatistics) else None
        return None

    def notify(self) -> None:
        self.queue.reader.notify()

    def stop(self, reason: str | None = None) -> None:
        self.queue.stop(reason)
        self.remote.reference.target.send(StopRun(self.remote.reference.run))

    def join(self) -> None:
        self.remote.over.wait(END_TIMEOUT)

    async def join_async(self) -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        self.remote.on_over = lambda: loop.call_soon_threadsafe(ended.set)
        if not self.remote.over.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), END_TIMEOUT)
