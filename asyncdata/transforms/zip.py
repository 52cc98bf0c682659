"""zip: the elements of several datasets side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import Any, final

from asyncdata.elements.columns import ColumnBatch
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import Node
from asyncdata.graph.stages import Merge, Opener
from asyncdata.options import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.tickets import END, Position, Start, Ticket, Tickets

__all__ = ("Zip",)


@dataclass(frozen=True, eq=False)
class Zip(Node):
    """Element i of every input as one element; ends with the shortest."""

    nodes: tuple[Node, ...]
    rebuild: Callable[[Iterable[Any]], Any] = field(repr=False)

    def stage(self) -> Merge:
        return Merge(self.blocks, waits=False)

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

    @property
    def random_access(self) -> bool:
        return all(node.random_access for node in self.nodes)

    def address(self, places: Sequence[int]) -> Sequence[Ticket]:
        return list(zip(*[node.address(places) for node in self.nodes], strict=True))

    def seek(self, count: int) -> Position:
        return [node.seek(count) for node in self.nodes]

    def label(self) -> str:
        return f"zip({len(self.nodes)} datasets)"

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        starts = [Start(END, list(column)) for column in zip(*tickets, strict=True)]
        return self.rows(scope, [node.open for node in self.nodes], want, starts)

    def blocks(self, scope: Scope, inputs: Sequence[Opener], want: Demand, position: Position) -> Blocks:
        """Run all inputs side by side."""
        return self.rows(scope, inputs, want, [Start.of(inner) for inner in position or [None] * len(inputs)])

    async def rows(self, scope: Scope, inputs: Sequence[Opener], want: Demand, starts: Sequence[Start]) -> Blocks:
        """Read as many elements of each input as are requested, and give out the rows that are complete."""
        inner = Demand()
        async with AsyncExitStack() as stack:
            sources = [
                await stack.enter_async_context(aclosing(opener(scope, inner, start)))
                for opener, start in zip(inputs, starts, strict=True)
            ]
            held: list[Block] = [Block([])] * len(sources)
            while True:
                longest = max(map(len, held))
                for index, source in enumerate(sources):
                    if not len(held[index]):
                        inner.items = longest or want.items
                        block = await anext(source, None)
                        if block is None:
                            return
                        held[index] = block
                rows = min(want.items, *map(len, held)) if len(held) > 1 else min(want.items, len(held[0]))
                yield self.joined([block.slice(0, rows) for block in held])
                held = [block.slice(rows, len(block)) for block in held]

    def joined(self, parts: list[Block]) -> Block:
        """Put rows together; a row with a failure in it is that failure."""
        columns = [part.columns[0] for part in parts if len(part.columns) == 1 and not part.columns[0].store.objects]
        if len(columns) == len(parts):
            together = ColumnBatch(self.rebuild([part.value for part in columns]), len(columns[0]))
            return Block.of_columns([together], ZipTickets([part.tickets for part in parts]))
        rows: Iterable[tuple[Any, ...]] = zip(*[part.items for part in parts], strict=True)
        tickets = ZipTickets([part.tickets for part in parts])
        if not any(part.failed for part in parts):
            items = list(rows) if self.rebuild is tuple else list(map(self.rebuild, rows))
            return Block(items, tickets)
        return Block([self.row(row) for row in rows], tickets, True)

    def row(self, row: tuple[Any, ...]) -> Any:
        """Return a row; if parts of it failed, the first failure, or rather that of a source."""
        failures = [part for part in row if type(part) is Failure]
        return next((one for one in failures if one.of_source), failures[0]) if failures else self.rebuild(row)


@final
class ZipTickets(Tickets):
    """The tickets of rows: those of their parts."""

    __slots__ = ("columns",)

    def __init__(self, columns: Sequence[Tickets]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, index: int) -> Ticket:
        return tuple([column[index] for column in self.columns])

    def at(self, count: int) -> Position:
        return [column.at(count) for column in self.columns]
