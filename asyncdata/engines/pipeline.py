"""Pipeline: one run of a plan, its task group, and the queue that its consumer reads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, cast

import anyio

from asyncdata.errors import AsyncDataError, ResumeError, annotate
from asyncdata.executors.leaving import LEAVING
from asyncdata.executors.scope import EndError, OwnedTask, Scope
from asyncdata.graph.node import Node
from asyncdata.graph.stages import fill
from asyncdata.memory.buffer_pool import keep_memory_warm
from asyncdata.memory.memcpy import HELP
from asyncdata.runtime.memory_budget import MemoryBudget
from asyncdata.runtime.meter import Meters
from asyncdata.runtime.queue import LoopQueue, clock_of
from asyncdata.runtime.tickets import FRESH, Start
from asyncdata.system import forks
from asyncdata.system.host_resources import usable_cores

__all__ = ("Pipeline", "first_of")


class Pipeline:
    """Runs a plan on the current loop until it ends, fails or is cancelled, and leaves nothing behind."""

    def __init__(
        self,
        plan: Node,
        queue: LoopQueue,
        epoch: tuple[Any, ...],
        consumer_loop: asyncio.AbstractEventLoop | None,
        start: Start,
        budget: MemoryBudget,
        meters: Meters,
        seed: int | None = None,
    ) -> None:
        keep_memory_warm()
        meters.output.buffers(queue)
        self.meters = meters
        self.plan = plan
        self.queue = queue
        self.epoch = epoch
        self.consumer_loop = consumer_loop
        self.start = start
        self.owned = OwnedTask(budget, seed)
        self.group_scope: anyio.CancelScope | None = None

    def cancel(self) -> None:
        """Stop it; on its own loop. If it is cancelled before it has started, it ends when it starts."""
        self.queue.stopped = True
        if self.group_scope is not None:
            self.group_scope.cancel()

    async def run(self) -> None:
        """Run the plan into the queue. Errors go through the queue, also those that are not an `Exception`."""
        try:
            LEAVING.set(self.owned.left)
            if usable_cores() > 1:
                HELP.set(self.owned.copier)
            with forks.IMPORTING:
                tasks = anyio.create_task_group()
            async with tasks as group:
                self.group_scope = group.cancel_scope
                scope = Scope(group, self.owned, epoch=self.epoch, consumer_loop=self.consumer_loop, meters=self.meters)
                scope.reads_ahead = self.queue.depth.items != 0
                self.meters.clock.begin(clock_of(scope.loop))
                if not self.queue.stopped:
                    await fill(self.queue, self.plan.open, scope, self.start)
                if self.owned.has_spawned:
                    group.cancel_scope.cancel()
            self.queue.finish()
        except asyncio.CancelledError:  # not by `cancel`: its loop is being shut down, and the caller says why
            raise
        except BaseException as error:
            self.queue.finish(blame_state(first_of(error), self.start))
        finally:
            self.meters.clock.end()
            self.owned.stop()
            await self.end_foreign_tasks()

    async def end_foreign_tasks(self) -> None:
        """Wait a moment for the tasks that run a user's async iterators; they have been cancelled."""
        here = [task for task in [*self.owned.tasks] if task.get_loop() is asyncio.get_running_loop()]
        if here:
            await asyncio.wait(here, timeout=0.8)


def leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from leaves(part)
    else:
        yield error.error if isinstance(error, EndError) else error


def first_of(error: BaseException) -> BaseException:
    """Return the first error of a group, with a note that it ended the pipeline."""
    first = next(leaves(error))
    annotate(first, "this error ended the pipeline")
    return first


MISFITS: Final = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError)
"""Errors that this package's code raises for an invalid position."""

OURS: Final = frozenset({"asyncdata", "base64", "json", "numpy"})


def blame_state(error: BaseException, start: Start) -> BaseException:
    """Return the error to report: in a run that resumed from a state, an error in this package's code means a damaged
    state."""
    if start == FRESH or isinstance(error, AsyncDataError) or not isinstance(error, MISFITS):
        return error
    if module_of(error.__traceback__).partition(".")[0] not in OURS:
        return error
    refused = ResumeError(f"the state is damaged, or does not fit the pipeline: {type(error).__name__}: {error!s:.200}")
    refused.__cause__ = error
    return refused


def module_of(trace: TracebackType | None) -> str:
    """Return the name of the module in which something was raised."""
    name = ""
    while trace is not None:
        name, trace = trace.tb_frame.f_globals.get("__name__", ""), trace.tb_next
    return name
