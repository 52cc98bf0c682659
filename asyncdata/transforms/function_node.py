"""The common part of map and filter: a user's function called on each element, several at once if requested."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Self

from asyncdata.errors import PlanError
from asyncdata.executors.autotune import Tuning
from asyncdata.executors.function_call import Call, default_workers
from asyncdata.executors.group_work import GroupWork
from asyncdata.executors.inflight_window import ResultStatistics
from asyncdata.executors.scope import Scope
from asyncdata.executors.workers import RemoteExecutor
from asyncdata.graph.node import PHYSICAL, Unary, parallel_label
from asyncdata.graph.stage_workers import CallExecutor
from asyncdata.graph.stages import Apply
from asyncdata.options import AUTOTUNE, Options
from asyncdata.runtime.block import Blocks, Demand
from asyncdata.runtime.resharding import Resharding
from asyncdata.runtime.tickets import (
    END,
    UNORDERED,
    Position,
    ReplayedTickets,
    Start,
    Ticket,
    WrappedTickets,
    replaying,
)

__all__ = ("Called", "travels", "tuning_for")


def tuning_for(call: Call, *, processes: bool) -> Tuning | None:
    """Return AUTOTUNE's tuner for a function; nothing if it may wait between its tries, which needs threads."""
    return None if call.waits else Tuning(processes=processes and travels(call), tasks=call.is_async)


def travels(call: Call) -> bool:
    """Return whether a function can be sent to a worker process."""
    from asyncdata.executors.process.workers import held_by

    try:
        held_by(GroupWork((call,)))
    except PlanError:
        return False
    return not call.is_async


def inner_position(position: Position) -> Position:
    """Return the input's position for the position of a call, which marks a run without a fixed order."""
    return position[UNORDERED] if is_unordered(position) else position


def is_unordered(position: Position) -> bool:
    return isinstance(position, dict) and UNORDERED in position


@dataclass(frozen=True, eq=False)
class Called(Unary):
    """A node that calls functions on elements by `workers` at once, `None` for one after another."""

    workers: int | None = field(default=None, kw_only=True, metadata=PHYSICAL)
    ordered: bool | None = field(default=None, kw_only=True, metadata=PHYSICAL)
    executor: CallExecutor | None = field(default=None, kw_only=True, metadata=PHYSICAL)
    """The executor of the calls, if not threads or tasks of the pipeline; or AUTOTUNE's tuner."""
    copied: bool = field(default=False, kw_only=True, repr=False, metadata=PHYSICAL)
    """Whether results are copied out of the memory that they arrive in, since they are held for long."""
    rows: int | None = field(default=None, kw_only=True, repr=False, metadata=PHYSICAL)
    """The size of batches that follow; workers make them as far as they can."""
    pure: bool = field(default=False, kw_only=True, repr=False, metadata=PHYSICAL)
    """Whether the user declared that calls may be made in any order, at once, again or not at all."""
    learnt: ResultStatistics = field(default_factory=ResultStatistics, kw_only=True, repr=False, metadata=PHYSICAL)
    """Measurements of its results by earlier runs, for later ones."""
    pinned: bool = field(default=False, kw_only=True, repr=False, metadata=PHYSICAL)
    """Whether the user chose that calls are made on the engine's thread."""

    may_be_unordered = True

    @property
    def calls(self) -> tuple[Call, ...]:
        """The functions, called one after another on each element."""
        return ()

    @property
    def worker_count(self) -> int | None:
        """How many workers it gets."""
        if self.workers != AUTOTUNE:
            return self.workers
        where = self.executor
        if where is None or isinstance(where, (Executor, RemoteExecutor, Tuning)):
            return default_workers()
        return where.count  # of worker processes

    def settled(self, options: Options, numbered: bool) -> Self:
        node = self
        if self.workers is not None and (numbered or self.ordered is None):
            node = dataclasses.replace(node, ordered=numbered or options.deterministic is not False)
        if isinstance(node.executor, Tuning) and options.autotune is False:
            node = dataclasses.replace(node, executor=None)
        return node

    @property
    def where(self) -> str:
        """Where the functions are called: `"inline"`, `"thread"`, `"task"`, `"process"` or the name of a cluster."""
        if isinstance(self.executor, Tuning):
            return self.executor.choice.where
        if isinstance(self.executor, RemoteExecutor):
            return self.executor.name
        if self.executor is not None:
            return "thread" if isinstance(self.executor, Executor) else "process"
        if any(call.is_async for call in self.calls):
            return "task"
        return "inline" if self.workers is None else "thread"

    @property
    def identity(self) -> str:
        return dataclasses.replace(self, workers=None, ordered=None, executor=None, rows=None).label()

    @property
    def preserves_tickets(self) -> bool:
        return self.workers is None or self.ordered is not False

    @property
    def left_out(self) -> Callable[[Ticket], bool] | None:
        return self.input.left_out

    @property
    def in_order(self) -> bool:
        return (self.workers is None or self.ordered is not False) and self.input.in_order

    def run(self, scope: Scope, want: Demand, start: Start) -> Blocks:
        """Run. If the order is not fixed, the input first gives what an earlier run had in flight."""
        if self not in scope.meters.steps and self.where not in scope.meter.within.functions:
            scope.meter.within.functions[self.where] = self.label()
        if not self.preserves_tickets and is_unordered(start.position):
            start = Start.of(inner_position(start.position))
        return super().run(scope, want, start)

    async def again(self, scope: Scope, want: Demand, start: Start) -> Blocks:
        """Yield the elements that must be given again and are ready; elements that a step further down was working on
        still have to pass its filter. The remaining ones stay first, and in order: a step above may have begun them."""
        inner = inner_position(start.position)
        self.input.check_back(scope, Start.of(inner, start.back))
        resumed = END if inner == END else {UNORDERED: inner}

        def position(_: int, rest: Position) -> Position:
            left = Start.of(rest).within().back
            return replaying(resumed, [ReplayedTickets(left, 0, len(left), END)])

        async with aclosing(self.fetch(scope, want, start.back)) as source:
            async for block in source:
                yield block.ticketed(WrappedTickets(block.tickets, position))

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        return dataclasses.replace(self, ordered=True).run(scope, want, Start(END, tickets))

    def reshard(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        inner = self.input.resharded([inner_position(position) for position in positions], resharding)
        return {UNORDERED: inner} if inner != END and any(map(is_unordered, positions)) else inner

    def calling(self, functions: tuple[Call, ...]) -> Apply:
        return Apply(
            functions,
            workers=self.worker_count,
            ordered=self.ordered is not False,
            executor=self.executor,
            copied=self.copied,
            rows=self.rows,
            learnt=self.learnt,
        )

    def how(self) -> str:
        """Return the part of a label that shows what runs at once."""
        if self.workers is None:
            return ""
        unordered = ", deterministic=False" if self.ordered is False else ""
        batched = "" if self.rows is None else f", batch={self.rows}"
        return f"{parallel_label(self.workers)}{unordered}{executor_label(self.executor)}{batched}"


def executor_label(executor: CallExecutor | None) -> str:
    """Return how a label shows where the calls are made."""
    if executor is None:
        return ""
    if isinstance(executor, Tuning):
        return ", executor=AUTOTUNE" if executor.processes else ""
    if isinstance(executor, RemoteExecutor):
        return f", executor={executor.name}"
    return f", executor={type(executor).__name__ if isinstance(executor, Executor) else 'process'}"
