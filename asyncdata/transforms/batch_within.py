"""batch(within=): batches that are given when they are full, or some time after their first element came."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar, final

from asyncdata.errors import PlanError
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import PHYSICAL, Node, UnseekableError
from asyncdata.graph.stages import Opener, split
from asyncdata.options import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.queue import LoopSignal
from asyncdata.runtime.tickets import FRESH, Position, Start
from asyncdata.transforms.batch import Batch, Batcher

__all__ = ("BatchWithin",)


@dataclass(frozen=True, eq=False)
class BatchWithin(Batch):
    """A `Batch` whose batches wait at most so many seconds after their first element has come."""

    within: float = field(default=inf, metadata=PHYSICAL)

    @staticmethod
    def of(plan: Node, size: int, drop_remainder: bool, within: Any) -> BatchWithin:
        """Return the node for the user's arguments."""
        if isinstance(within, bool) or not isinstance(within, (int, float)) or not 0 < within < inf:
            raise PlanError(f"batch(within=) must be a number of seconds above 0, got {within!r:.80}")
        if drop_remainder:
            raise PlanError("batch(within=) gives batches that are not full, which drop_remainder=True would drop")
        return BatchWithin(plan, size, False, within)

    def stage(self) -> Timed:
        return Timed(self)

    @property
    def in_order(self) -> bool:
        """How many elements are in a batch depends on when they come."""
        return False

    @property
    def own_order(self) -> str:
        return "gives as many elements in a batch as come in time: put shard() before it"

    @property
    def cardinality(self) -> int:
        return INFINITE_CARDINALITY if self.input.cardinality == INFINITE_CARDINALITY else UNKNOWN_CARDINALITY

    def seek(self, count: int) -> Position:
        raise UnseekableError(self.label())

    @property
    def identity(self) -> str:
        """A run may continue with another time, or with none."""
        return self.written

    def label(self) -> str:
        return f"batch({self.size}, within={self.within:g})"


@dataclass(frozen=True)
class Timed:
    """Feeds a batcher, and makes it give out its elements when they are due."""

    node: BatchWithin
    counts: ClassVar[bool] = False

    @property
    def waits(self) -> bool:
        return True

    def open(self, scope: Scope, inputs: Sequence[Opener], want: Demand, start: Start) -> Blocks:
        step = self.node.step()
        begin = FRESH if start.position is None else step.resume(start.position)
        return self.run(scope, step, InputReader(scope, inputs[0], begin), want)

    async def run(self, scope: Scope, step: Batcher, inlet: InputReader, want: Demand) -> Blocks:
        """Read the elements that the next batches need, and wait until the batch under construction is due."""
        cancel, due = scope.spawn(inlet.run), inf
        try:
            while True:
                inlet.ask(step.need(want.items))
                if not await inlet.came_before(due):
                    out, due = Block.join([*step.flush()]), inf
                elif (block := inlet.take()) is None:
                    break
                else:
                    before = step.count
                    out = step.feed(block)
                    if not step.count:
                        due = inf
                    elif not before or step.count < before + len(block):  # it is another batch
                        due = scope.loop.time() + self.node.within
                for part in split(out, want):
                    yield part
        finally:
            cancel.cancel()
        for block in step.flush():
            for part in split(block, want):
                yield part


@final
class InputReader:
    """Reads the input in a task of its own, one block per request, so that the batch step need not wait for it.

    A caller that gave up waiting finds the block later.
    """

    def __init__(self, scope: Scope, opener: Opener, start: Start) -> None:
        self.scope, self.opener, self.start = scope, opener, start
        self.asked, self.came = LoopSignal(scope.loop), LoopSignal(scope.loop)
        self.wanted = 0
        self.block: Block | None = None
        self.ended = self.due = False

    async def run(self) -> None:
        """Read as often as it is asked to, until the input ends."""
        want = Demand()
        async with aclosing(self.opener(self.scope, want, self.start)) as source:
            while not self.ended:
                await self.asked.until(lambda: self.wanted)
                want.items = self.wanted
                self.block = await anext(source, None)
                self.ended, self.wanted = self.block is None, 0
                self.came.notify()

    def ask(self, count: int) -> None:
        """Start to read at most so many elements, unless some are ready or being read."""
        if not (self.wanted or self.block):
            self.wanted = count
            self.asked.notify()

    def ready(self) -> bool:
        return self.block is not None or self.ended

    async def came_before(self, due: float) -> bool:
        """Wait for a block, or the end, until a time of the loop; return whether it came."""
        if self.ready():
            return True
        self.due = False
        timer = None if due == inf else self.scope.loop.call_at(due, self.expire)
        try:
            await self.came.until(lambda: self.ready() or self.due)
        finally:
            if timer is not None:
                timer.cancel()
        return self.ready()

    def expire(self) -> None:
        self.due = True
        self.came.notify()

    def take(self) -> Block | None:
        """Take the block; `None` at the end."""
        block, self.block = self.block, None
        return block
