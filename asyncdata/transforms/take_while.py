"""take_while: the elements before the first for which a predicate is false."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.plan import Node, Unary, check_arguments
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.executors import Pace
from asyncdata.runtime.scope import Scope
from asyncdata.runtime.stage import Merge, Opener
from asyncdata.runtime.tickets import END, Position, Start, Ticket
from asyncdata.transforms.filter import Predicate

__all__ = ("TakeWhile",)

GROUP: Final = 1e-3


@dataclass(frozen=True, eq=False)
class TakeWhile(Unary):
    """The elements before the first for which `predicate` is false; it is not called for those behind."""

    predicate: Predicate

    @staticmethod
    def of(plan: Node, predicate: Predicate) -> TakeWhile:
        """Return the node; `PlanError` if the predicate cannot be called with the elements."""
        check_arguments(predicate, plan)
        return TakeWhile(plan, predicate)

    def stage(self) -> Merge:
        return Merge(self.blocks)

    @property
    def cardinality(self) -> int:
        return 0 if self.input.cardinality == 0 else UNKNOWN_CARDINALITY

    def label(self) -> str:
        return self.predicate.name

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        return self.passing(self.input.open(scope, want, Start(END, tickets)), want)

    def blocks(self, scope: Scope, inputs: Sequence[Opener], want: Demand, position: Position) -> Blocks:
        """Run the input as far as it goes."""
        return self.passing(inputs[0](scope, want, Start.of(position)), want)

    async def passing(self, source: Blocks, want: Demand) -> Blocks:
        """Yield elements up to the first for which the predicate is false, about a millisecond's worth at a time."""
        pace = Pace(GROUP)
        async with aclosing(source):
            async for block in source:
                start = 0
                while start < len(block):
                    group = block.part(start, start + min(pace.group, want.items))
                    begin = time.perf_counter()
                    kept = await self.checked(group)
                    if not self.predicate.is_async:
                        pace.measured(len(group), time.perf_counter() - begin)
                    if kept.items:
                        yield kept
                    if len(kept) < len(group):
                        return
                    start += len(group)

    async def checked(self, group: Block) -> Block:
        """Return the elements of a group before the first for which the predicate is false."""
        kept = list(group.items)
        for place, item in enumerate(group.items):
            if type(item) is Failure:
                continue
            one = group.part(place, place + 1)
            if self.predicate.is_async:
                verdict = await self.predicate.run_async(item, one.tickets[0])
            else:
                verdict = self.predicate.run(one).items[0]
            if type(verdict) is Failure:
                kept[place] = verdict
            elif not verdict:
                del kept[place:]
                break
        return Block(kept, group.tickets.part(0, len(kept)), Failure in set(map(type, kept)))
