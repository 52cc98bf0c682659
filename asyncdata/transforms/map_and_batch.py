"""map and batch in one step: a function that also takes batches is called once for each."""

from __future__ import annotations

import time
from asyncio import CancelledError
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from asyncdata.elements.columns import ColumnBatch
from asyncdata.elements.structure import stack
from asyncdata.executors.function_call import Call
from asyncdata.executors.group_work import GroupWork
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import REPLACEABLE
from asyncdata.graph.stages import Fold
from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.tickets import Ticket
from asyncdata.transforms.batch import Batch, Batcher
from asyncdata.transforms.map import Map
from asyncdata.transforms.map_batches import rows

__all__ = ("MapAndBatch",)


@dataclass(frozen=True, eq=False)
class MapAndBatch(Batch):
    """The batches of `map(..., vectorized=True).batch(size)`."""

    functions: tuple[Call, ...] = field(default=(), metadata=REPLACEABLE)

    @staticmethod
    def of(mapped: Map, batch: Batch) -> MapAndBatch:
        """Return the one node for two."""
        return MapAndBatch(mapped.input, batch.size, batch.drop_remainder, mapped.functions)

    def stage(self) -> Fold:
        return Fold(
            lambda scope: VectorBatcher(self, GroupWork(self.functions).at(scope.epoch, scope.meter.function_seconds))
        )

    def at_once(self, most: int) -> None:
        """Return nothing: the user's functions must be called."""

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        return Batch(Map(self.input, self.functions), self.size, self.drop_remainder).fetch(scope, want, tickets)

    @property
    def signature(self) -> None:
        return None

    def label(self) -> str:
        names = " → ".join(call.name for call in self.functions)
        return f"map_and_batch({names}, {self.size}{', drop_remainder=True' if self.drop_remainder else ''})"


class VectorBatcher(Batcher):
    """Collects elements until there are enough for the batch, and then calls the functions on all of them at once.

    If that fails they are called for each element, so that a failure passes at once, as in `batch`, and the next
    elements fill the batch.
    """

    def __init__(self, node: MapAndBatch, work: GroupWork) -> None:
        super().__init__(node)
        self.work = work
        self.waiting: list[Block] = []
        self.waits = 0

    def need(self, want: int) -> int:
        return super().need(want) - self.waits

    def feed(self, block: Block) -> Block:
        out: list[Block] = []
        for piece in block.pieces():
            start = 0
            while start < len(piece):
                part = piece.slice(start, start + max(1, self.size - self.count - self.waits))
                start += len(part)
                if part.failed:
                    out += [self.call_held(), super().feed(part)]
                    continue
                self.waiting.append(part)
                self.waits += len(part)
                if self.count + self.waits >= self.size:
                    out.append(self.call_held())
        made = [part for part in out if len(part)]
        return Block.join(made) if made else Block([])

    def call_held(self) -> Block:
        """Call the functions on the waiting elements; return the batches and failures."""
        if not self.waiting:
            return Block([])
        joined, self.waiting, self.waits = Block.join(self.waiting), [], 0
        return super().feed(self.at_once(joined) or self.work.run(joined))

    def at_once(self, block: Block) -> Block | None:
        """Return the results of a call for all elements; `None` if it fails."""
        try:
            result = ColumnBatch.stacked(block.columns) if block.columns else stack(block.items)
            times, taken = self.work.times, list[float]()
            for call in self.work.calls:
                begin = time.perf_counter()
                result = call.call_one(result)
                taken.append(time.perf_counter() - begin)
            if times is not None and times.is_due(len(block)):
                times.add(len(block), taken)
            columns = ColumnBatch.of(result)
            if columns is not None and len(columns) == len(block):
                return Block.of_columns([columns], block.tickets)
            return Block(rows(result, len(block)), block.tickets)
        except (Exception, CancelledError):
            return None

    def flush(self) -> Iterator[Block]:
        made = self.call_held()
        if made.items:
            yield made
        yield from super().flush()
