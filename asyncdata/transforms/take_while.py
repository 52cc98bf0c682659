"""take_while: the elements before the first for which a predicate is false."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from asyncdata.executors.scope import Scope
from asyncdata.graph.node import REPLACEABLE, Node, Unary, check_arguments
from asyncdata.graph.stages import CallStep, FoldCalls
from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.tickets import END, Start, Ticket
from asyncdata.transforms.filter import Predicate

__all__ = ("TakeWhile",)


@dataclass(frozen=True, eq=False)
class TakeWhile(Unary):
    """The elements before the first for which `predicate` is false; it is not called for later ones."""

    predicate: Predicate = field(metadata=REPLACEABLE)

    @staticmethod
    def of(plan: Node, predicate: Predicate) -> TakeWhile:
        """Return the node; `PlanError` if the predicate cannot be called with the elements."""
        check_arguments(predicate, plan)
        return TakeWhile(plan, predicate)

    def stage(self) -> FoldCalls:
        is_async = self.predicate.is_async
        return FoldCalls(lambda: TakeWhileStep(self.predicate), is_async, one_by_one=is_async)

    @property
    def cardinality(self) -> int:
        return 0 if self.input.cardinality == 0 else UNKNOWN_CARDINALITY

    def label(self) -> str:
        return self.predicate.name

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        inner = Demand()
        source = self.input.open(scope, inner, Start(END, tickets))
        return self.stage().run(TakeWhileStep(self.predicate), source, inner, want)


class TakeWhileStep(CallStep):
    """Passes elements on until the predicate is false for one."""

    def __init__(self, predicate: Predicate) -> None:
        self.predicate = predicate

    async def feed(self, group: Block) -> Block:
        kept: list[Any] = []
        for piece in group.pieces():
            if piece.failed:
                kept += piece.items
                continue
            passed = await self.awaited(piece) if self.predicate.is_async else self.call_all(piece)
            kept += passed
            if len(passed) < len(piece):
                self.done = True
                break
        return Block(kept, group.tickets.slice(0, len(kept)), Failure in set(map(type, kept)))

    def call_all(self, piece: Block) -> list[Any]:
        """Return elements before the first for which the predicate is false; if it fails, the element is a failure."""
        items, rest, kinds = piece.items, iter(piece.items), set(map(type, piece.items))
        kept: list[Any] = []
        while len(kept) < len(items):
            try:
                for verdict in self.predicate.over(rest, kinds):
                    if not verdict:
                        return kept
                    kept.append(items[len(kept)])
            except (Exception, CancelledError) as error:
                kept.append(self.predicate.failure(error, piece.tickets[len(kept)]))
                continue
            if len(kept) < len(items):  # a StopIteration from the function ended the loop
                kept.append(self.predicate.failure(StopIteration(), piece.tickets[len(kept)]))
        return kept

    async def awaited(self, piece: Block) -> list[Any]:
        """Do the same with a coroutine function."""
        kept: list[Any] = []
        for item, ticket in zip(piece.items, piece.tickets, strict=True):
            verdict = await self.predicate.run_async(item, ticket)
            if type(verdict) is not Failure and not verdict:
                break
            kept.append(verdict if type(verdict) is Failure else item)
        return kept
