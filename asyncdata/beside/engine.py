"""The engine of `placement="process"`: it has a run in another process for its consumer."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from asyncdata import forks
from asyncdata.beside.apart import transfer_of
from asyncdata.beside.companion import companion_of
from asyncdata.beside.letters import Chosen, Order, Stop
from asyncdata.beside.line import Course, GoneError, Line
from asyncdata.options import Options
from asyncdata.plan import Node
from asyncdata.runtime.bridge import PATIENCE, Run, wait_in_thread, wait_on_loop
from asyncdata.runtime.interrupts import Interrupts
from asyncdata.runtime.queue import BlockQueue

__all__ = ("ProcessEngine",)


class ProcessEngine:
    """Has a pipeline run in a process of its own, which stays for later epochs of the same plan."""

    def __init__(self, plan: Node, options: Options, run: Run) -> None:
        self.companion = companion_of(plan)
        letters = self.companion.letters
        course = Course(letters, next(letters.numbers), run.start, run.plan.in_order, transfer_of(plan))
        self.queue: BlockQueue = (line := Line(course))
        self.line = line
        self.order = Order(options, run.epoch[0], run.start.told())
        weakref.finalize(self, letters.forget, course.run).atexit = False
        forks.own(self)

    def start(self) -> None:
        self.companion.letters.begin(self.line, self.order)

    def disown(self) -> None:
        """Leave the run to the parent in a forked child."""
        forks.keep_for_ever(self)

    def wait(self, ready: Callable[[], object], interrupts: Interrupts) -> None:
        wait_in_thread(self.queue, ready, interrupts)

    async def wait_async(self, ready: Callable[[], object]) -> None:
        await wait_on_loop(self.queue, ready)

    def stats(self) -> list[dict[str, Any]] | None:
        """Return what AUTOTUNE has chosen there so far; `None` if nobody is there to tell."""
        with suppress(GoneError):
            return self.line.course.post.ask(self.line.course.run, Chosen())
        return None

    def notify(self) -> None:
        self.queue.reader.notify()

    def stop(self, reason: str | None = None) -> None:
        self.queue.stop(reason)
        self.line.course.post.tell(Stop(self.line.course.run))

    def join(self) -> None:
        self.line.over.wait(PATIENCE)

    async def join_async(self) -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        self.line.on_over = lambda: loop.call_soon_threadsafe(ended.set)
        if not self.line.over.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), PATIENCE)
