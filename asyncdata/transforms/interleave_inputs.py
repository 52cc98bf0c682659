"""The inner datasets that an interleave has open, and where the next one comes from."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing, nullcontext
from functools import partial
from itertools import count
from typing import Final, Protocol, TypeAlias

from asyncdata.executors.function_call import Call
from asyncdata.executors.interleave_tuner import InterleaveTuner, ReadLimiter, ReadPermit
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import Node
from asyncdata.graph.stages import Opener, fill
from asyncdata.options import AUTOTUNE
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.queue import BufferSize, LoopQueue, LoopSignal
from asyncdata.runtime.tickets import Position, Start, Tickets, children
from asyncdata.sources.random_access import InMemorySource, is_row
from asyncdata.transforms.inner_datasets import check_resumable, inner_plan, seeds_below
from asyncdata.transforms.interleave_position import InterleavePosition, SlotState

__all__ = ("CycleSlot", "Elsewhere", "Inputs", "ParallelInputs", "Refused", "SerialInputs")

QUICK: Final = 1e-4
"""A dataset that the function makes in fewer seconds is made while ready elements are held."""


class CycleSlot:
    """One open inner dataset and its elements that were read."""

    def __init__(self, outer: Tickets, begin: Position) -> None:
        self.outer = outer
        self.ticket = outer[0]
        self.begin = begin
        self.inner: Tickets | None = None
        self.held = Block([])
        self.start = 0

    @property
    def state(self) -> SlotState:
        return SlotState(self.outer, self.begin, self.inner, self.start)

    @property
    def left(self) -> int:
        """How many items are here already."""
        return len(self.held) - self.start

    def take(self, count: int) -> Block:
        """Take `count` of the items that are here."""
        part = self.held.slice(self.start, self.start + count)
        self.start += count
        return part

    def hold(self, block: Block | None) -> bool:
        """Store a block that was read; return whether there was one."""
        if block is None:
            return False
        self.inner = block.tickets
        self.held = block.ticketed(children(self.ticket, block.tickets))
        self.start = 0
        return True

    @property
    def is_ready(self) -> bool:
        """Whether to fill it, or to find that it is over, takes no waiting."""
        return False

    @property
    def is_over(self) -> bool:
        """Whether it has ended, as far as known without waiting."""
        return False

    def fill_now(self, most: int) -> bool:
        """Get ready items without waiting, if there are any; at most so many, unless more have been read."""
        return False

    async def fill(self, limit: int) -> bool:
        """Wait for items; return false at the end."""
        raise NotImplementedError

    async def close(self) -> None:
        """Leave the inner dataset."""
        raise NotImplementedError


class SerialSlot(CycleSlot):
    """An inner dataset that is read when its turn comes."""

    def __init__(self, outer: Tickets, begin: Position, source: Blocks, want: Demand) -> None:
        super().__init__(outer, begin)
        self.source = source
        self.want = want

    async def fill(self, limit: int) -> bool:
        self.want.items = limit
        return self.hold(await anext(self.source, None))

    async def close(self) -> None:
        await self.source.aclose()


class RowsSlot(CycleSlot):
    """An inner dataset in memory, whose rows are there when its turn comes."""

    def __init__(self, outer: Tickets, begin: Position, rows: InMemorySource) -> None:
        super().__init__(outer, begin)
        self.rows = rows
        self.size = rows.size
        self.row: int = begin or 0

    @property
    def is_ready(self) -> bool:
        return True

    @property
    def is_over(self) -> bool:
        return self.row >= self.size and not self.left

    def fill_now(self, most: int) -> bool:
        start, self.row = self.row, min(self.size, self.row + most)
        return self.hold(self.rows.block(start, self.row) if start < self.row else None)

    async def fill(self, limit: int) -> bool:
        return self.fill_now(limit)

    async def close(self) -> None:
        """Do nothing, as nothing is open."""


def rows_in_memory(plan: Node, begin: Position) -> InMemorySource | None:
    """Return the inner dataset if it is in memory and starts at one of its rows, so that it need not be run."""
    return plan if isinstance(plan, InMemorySource) and plan.is_in_memory and is_row(begin) else None


class ReaderSlot(CycleSlot):
    """An inner dataset that its own task reads into a queue."""

    def __init__(self, outer: Tickets, begin: Position, queue: LoopQueue, signal: LoopSignal) -> None:
        super().__init__(outer, begin)
        self.queue = queue
        self.signal = signal

    @property
    def is_ready(self) -> bool:
        return self.queue.may_read()

    @property
    def is_over(self) -> bool:
        return self.queue.ended and not self.queue.blocks and not self.left

    def fill_now(self, most: int) -> bool:
        return self.hold(self.queue.take_ready(1 << 30))

    async def fill(self, limit: int) -> bool:
        if not self.queue.may_read():
            self.queue.request_more()
            await self.signal.until(self.queue.may_read)
        return self.fill_now(limit)

    async def close(self) -> None:
        self.queue.stop()


Refused: TypeAlias = tuple[Tickets, Failure]
"""The element of which no dataset could be made, and why."""


class Elsewhere(Protocol):
    """Where inner datasets run, if not here; steps that follow may run with them."""

    @property
    def at_once(self) -> int:
        """How many are run at once where they are given out one after another."""
        ...

    def plan_elsewhere(self, plan: Node) -> Node:
        """Return the plan that runs instead of an inner dataset, which may be itself."""
        ...

    def plan_here(self, plan: Node) -> Node:
        """Return a plan with the same elements that runs here."""
        ...


class Cycled(Protocol):
    """A node's description of its inner datasets: how they are made, and how many are open and read at once."""

    @property
    def input(self) -> Node:
        """Gives the elements."""
        ...

    @property
    def function(self) -> Call:
        """Makes a dataset of an element."""
        ...

    @property
    def cycle_length(self) -> int:
        """How many are open."""
        ...

    @property
    def block_length(self) -> int:
        """How many elements of one go out in turn."""
        ...

    @property
    def workers(self) -> int | None:
        """How many are read at once."""
        ...

    @property
    def elsewhere(self) -> Elsewhere | None:
        """Where inner datasets run that are read at once with others, if not here."""
        ...

    @property
    def tuner(self) -> InterleaveTuner | None:
        """AUTOTUNE's tuner of that number."""
        ...


class Inputs(Protocol):
    """Where the next inner dataset comes from."""

    signal: LoopSignal

    def idle(self) -> bool:
        """Return whether `next` would have to wait, or may take long."""
        ...

    async def next(self) -> CycleSlot | Refused | None:
        """Return the next inner dataset, a failure in its place, or `None` after the last."""
        ...

    def close(self) -> Awaitable[None]:
        """Leave the input."""
        ...


class SerialInputs:
    """Opens an inner dataset when the cycle comes to a free slot."""

    def __init__(self, node: Cycled, scope: Scope, opener: Opener, place: InterleavePosition) -> None:
        self.function = node.function
        self.seeds = seeds_below(node.input)
        self.scope = scope
        self.signal = LoopSignal(scope.loop)
        self.outer = opener(scope, Demand(), Start.of(place.outer))
        self.begins = deque(place.begun)
        self.is_in_memory = (
            isinstance(node.input, InMemorySource) and node.input.is_in_memory and not node.function.is_async
        )
        self.quick = False

    def idle(self) -> bool:
        return not self.quick

    async def next(self) -> CycleSlot | Refused | None:
        block = await anext(self.outer, None)
        if block is None:
            return None
        since = time.perf_counter()
        plan = await inner_plan(self.function, block, self.seeds)
        self.quick = self.is_in_memory and time.perf_counter() - since < QUICK
        begin = self.begins.popleft() if self.begins else None
        if type(plan) is Failure:
            return block.tickets, plan
        check_resumable(self.function, plan, begin)
        if (rows := rows_in_memory(plan, begin)) is not None:
            return RowsSlot(block.tickets, begin, rows)
        inner, want = self.scope.at(block.tickets[0]), Demand()
        return SerialSlot(block.tickets, begin, plan.open(inner, want, Start.of(begin)), want)

    async def close(self) -> None:
        await self.outer.aclose()


class PendingDataset:
    """An element, and the dataset that the function has made from it, once it has."""

    __slots__ = ("block", "plan")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.plan: Node | Failure | None = None


class ParallelInputs:
    """Reads as many inner datasets at once as the cycle has slots; one that has ended is replaced by the next.

    No more than that wait for a slot: otherwise the buffers could hold all of many short datasets. If they read from
    other machines, one more is started ahead, so that its first answer is there when its turn comes.

    A coroutine function is awaited for as many as are read at once. Datasets wait in the order of the input.
    """

    def __init__(self, node: Cycled, scope: Scope, opener: Opener, place: InterleavePosition) -> None:
        self.workers = workers = node.cycle_length if node.workers in (None, AUTOTUNE) else node.workers or 1
        self.node = node
        self.seeds = seeds_below(node.input)
        self.scope = scope
        self.outer = opener(scope, Demand(), Start.of(place.outer))
        self.begins = deque(place.begun)
        self.signal = LoopSignal(scope.loop)
        self.slot_free = LoopSignal(scope.loop)
        self.turn = asyncio.Semaphore(workers) if workers < node.cycle_length else nullcontext()
        self.gate = None if node.tuner is None else ReadLimiter(node.tuner)
        self.reading = 0
        self.ahead = 0
        self.first = (node.block_length + 1, 0)
        self.pending: deque[PendingDataset] = deque()
        self.standby: deque[CycleSlot | Refused] = deque()
        self.numbers = count()
        self.read_all = self.ended = False
        self.tasks = {-1: scope.spawn(self.run)}

    def idle(self) -> bool:
        return not self.may_read()

    def may_read(self) -> bool:
        return bool(self.standby) or self.ended

    def has_free_slot(self) -> bool:
        begun, there = len(self.pending), max(self.reading - self.ahead, len(self.standby))
        return begun < self.workers and there + begun < self.node.cycle_length

    async def run(self) -> None:
        """Open inner datasets as long as there is a vacancy."""
        async with aclosing(self.outer):
            while True:
                await self.slot_free.until(self.has_free_slot)
                block = await anext(self.outer, None)
                if block is None:
                    break
                made = PendingDataset(block)
                self.pending.append(made)
                if self.node.function.is_async:
                    self.start(partial(self.make, made))
                else:
                    await self.make(made)
        self.read_all = True
        self.line_up()

    def start(self, run: Callable[[], Awaitable[None]]) -> None:
        """Start a task that ends when this is closed, if not before."""
        number = next(self.numbers)

        async def task() -> None:
            try:
                await run()
            finally:
                del self.tasks[number]

        self.tasks[number] = self.scope.spawn(task)

    async def make(self, made: PendingDataset) -> None:
        """Call the function for a dataset, which is ready once all before it are."""
        made.plan = await inner_plan(self.node.function, made.block, self.seeds)
        self.line_up()

    def line_up(self) -> None:
        """Mark the datasets that are made as ready, up to the first that is not."""
        while self.pending and (plan := self.pending[0].plan) is not None:
            self.make_ready(plan, self.pending.popleft().block.tickets)
        self.ended = self.read_all and not self.pending
        self.signal.notify()
        self.slot_free.notify()

    def make_ready(self, plan: Node | Failure, outer: Tickets) -> None:
        """Read a dataset, or report a failure, in its turn."""
        begin = self.begins.popleft() if self.begins else None
        if type(plan) is not Failure:
            check_resumable(self.node.function, plan, begin)
            plan = plan if self.node.elsewhere is None else self.node.elsewhere.plan_elsewhere(plan)
        if type(plan) is Failure:
            self.standby.append((outer, plan))
        elif (rows := rows_in_memory(plan, begin)) is not None:
            self.standby.append(RowsSlot(outer, begin, rows))
        else:
            self.admit(plan, outer, begin)

    def admit(self, plan: Node, outer: Tickets, begin: Position) -> None:
        """Start to read an inner dataset."""
        depth = BufferSize(AUTOTUNE, self.scope.owned.budget.share(copies=2), self.first)
        queue = LoopQueue(depth, LoopSignal(self.scope.loop), self.signal)
        self.reading += 1
        self.ahead = int(plan.reads_elsewhere)  # the next dataset is likely of the same kind
        self.standby.append(ReaderSlot(outer, begin, queue, self.signal))
        self.start(partial(self.read, queue, plan, self.scope.at(outer[0]), Start.of(begin)))

    async def read(self, queue: LoopQueue, plan: Node, scope: Scope, start: Start) -> None:
        """Read one inner dataset into its queue."""
        try:
            await fill(queue, plan.open, scope, start, self.turn if self.gate is None else ReadPermit(self.gate, queue))
        finally:
            self.reading -= 1
            self.first = queue.depth.items, queue.depth.weight  # the next dataset will need about as much
            if self.node.tuner is not None:
                self.node.tuner.buffer = queue.depth.items
            self.slot_free.notify()

    async def next(self) -> CycleSlot | Refused | None:
        await self.signal.until(self.may_read)
        opened = self.standby.popleft() if self.standby else None
        self.slot_free.notify()
        return opened

    async def close(self) -> None:
        for task in self.tasks.values():
            task.cancel()
