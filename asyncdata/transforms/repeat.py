"""repeat and concatenate: one dataset after the other."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from asyncdata.options import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from asyncdata.plan import Node, Unary, finite, repeated
from asyncdata.runtime.block import Block, Blocks, Demand, children
from asyncdata.runtime.scope import Scope
from asyncdata.runtime.stage import Merge, Opener

__all__ = ("Concatenate", "Repeat")


@dataclass(frozen=True, eq=False)
class Repeat(Unary):
    """The input `count` times, for ever if -1. An empty input ends it."""

    count: int

    def stage(self) -> Merge:
        return Merge(self.blocks)

    @property
    def cardinality(self) -> int:
        return repeated(self.input.cardinality, self.count)

    def label(self) -> str:
        return f"repeat({'' if self.count < 0 else self.count})"

    async def blocks(self, scope: Scope, inputs: Sequence[Opener], want: Demand) -> Blocks:
        """Run the input again and again, each time as an epoch of its own; once is the input itself."""
        if self.count == 1:
            async with aclosing(inputs[0](scope, want)) as source:
                async for block in source:
                    yield block
            return
        repetition = 0
        while repetition != self.count:
            empty = True
            async with aclosing(inputs[0](scope.at(repetition), want)) as source:
                async for block in source:
                    empty = False
                    yield Block(block.items, children(repetition, block.tickets), block.failed)
            if empty:
                return
            repetition += 1


@dataclass(frozen=True, eq=False)
class Concatenate(Node):
    """All of the first input, then all of the second."""

    first: Node
    second: Node

    def stage(self) -> Merge:
        return Merge(self.blocks)

    @property
    def cardinality(self) -> int:
        sizes = (self.first.cardinality, self.second.cardinality)
        if all(map(finite, sizes)):
            return sum(sizes)
        return INFINITE_CARDINALITY if INFINITE_CARDINALITY in sizes else UNKNOWN_CARDINALITY

    @property
    def signature(self) -> Any:
        first, second = self.first.signature, self.second.signature
        return first if first == second else None

    async def blocks(self, scope: Scope, inputs: Sequence[Opener], want: Demand) -> Blocks:
        """Run one input after the other."""
        for index, opener in enumerate(inputs):
            async with aclosing(opener(scope, want)) as source:
                async for block in source:
                    yield Block(block.items, children(index, block.tickets), block.failed)
