"""zip and enumerate: elements side by side, and numbered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import Any

from asyncdata.options import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from asyncdata.plan import Node, Unary
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.scope import Scope
from asyncdata.runtime.stage import Fold, Merge, Opener, Step
from asyncdata.structure import TensorSpec

__all__ = ("Enumerate", "Zip")


@dataclass(frozen=True, eq=False)
class Zip(Node):
    """Element i of every input as one element; ends with the shortest."""

    nodes: tuple[Node, ...]
    rebuild: Callable[[Iterable[Any]], Any] = field(repr=False)

    def stage(self) -> Merge:
        return Merge(self.blocks)

    @property
    def cardinality(self) -> int:
        sizes = [node.cardinality for node in self.nodes]
        if UNKNOWN_CARDINALITY in sizes:
            return 0 if 0 in sizes else UNKNOWN_CARDINALITY
        return min((size for size in sizes if size >= 0), default=INFINITE_CARDINALITY)

    @property
    def signature(self) -> Any:
        found = [node.signature for node in self.nodes]
        return None if any(part is None for part in found) else self.rebuild(found)

    async def blocks(self, scope: Scope, inputs: Sequence[Opener], want: Demand) -> Blocks:
        """Read as many elements of each input as are wanted, and give out the rows that are complete."""
        inner = Demand()
        async with AsyncExitStack() as stack:
            sources = [await stack.enter_async_context(aclosing(opener(scope, inner))) for opener in inputs]
            held: list[Block] = [Block([], ())] * len(sources)
            while True:
                longest = max(map(len, held))
                for index, source in enumerate(sources):
                    if not held[index].items:
                        inner.items = longest or want.items
                        block = await anext(source, None)
                        if block is None:
                            return
                        held[index] = block
                rows = min(want.items, *map(len, held)) if len(held) > 1 else min(want.items, len(held[0]))
                yield self.joined([block.part(0, rows) for block in held])
                held = [block.part(rows, len(block)) for block in held]

    def joined(self, parts: list[Block]) -> Block:
        """Put rows together; a row with a failure in it is that failure."""
        rows: Iterable[tuple[Any, ...]] = zip(*[part.items for part in parts], strict=True)
        tickets = list(zip(*[part.tickets for part in parts], strict=True))
        if not any(part.failed for part in parts):
            items = list(rows) if self.rebuild is tuple else list(map(self.rebuild, rows))
            return Block(items, tickets)
        return Block([self.row(row) for row in rows], tickets, True)

    def row(self, row: tuple[Any, ...]) -> Any:
        failure = next((part for part in row if type(part) is Failure), None)
        return self.rebuild(row) if failure is None else failure


@dataclass(frozen=True, eq=False)
class Enumerate(Unary):
    """Pairs (number, element), counted from `start`."""

    start: int = 0

    def stage(self) -> Fold:
        return Fold(lambda _: Enumerator(self.start))

    @property
    def cardinality(self) -> int:
        return self.input.cardinality

    @property
    def signature(self) -> Any:
        inner = self.input.signature
        return None if inner is None else (TensorSpec((), "int64"), inner)


class Enumerator(Step):
    """Counts; a failed element has its number like any other."""

    def __init__(self, start: int) -> None:
        self.next = start

    def feed(self, block: Block) -> Block:
        numbers = range(self.next, self.next + len(block))
        self.next = numbers.stop
        pairs = list(zip(numbers, block.items, strict=True))
        if block.failed:
            return Block([p[1] if type(p[1]) is Failure else p for p in pairs], block.tickets, True)
        return Block(pairs, block.tickets)
