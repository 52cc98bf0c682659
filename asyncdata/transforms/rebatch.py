"""rebatch: the rows of batches cut into batches of other sizes, which may follow each other in a cycle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, cycle, islice, takewhile
from typing import Any

from asyncdata.elements.structure import prefixed
from asyncdata.errors import PlanError
from asyncdata.graph.node import Node, check_count, scaled
from asyncdata.runtime.block import Block
from asyncdata.runtime.resharding import Resharding
from asyncdata.runtime.tickets import Position, Start, Tickets, WrappedTickets, natural
from asyncdata.transforms.batch import Batch, Batcher
from asyncdata.transforms.unbatch import Unbatch

__all__ = ("Rebatch",)


@dataclass(frozen=True, eq=False)
class Rebatch(Batch):
    """Consecutive elements as one, `sizes[0]` first, then `sizes[1]` and so on, in a cycle; `size` is their sum."""

    sizes: tuple[int, ...] = ()

    @staticmethod
    def of(plan: Node, batch_size: Any, drop_remainder: bool) -> Batch:
        """Return a plan for the user's sizes: one, or several."""
        rows = Unbatch.of(plan, "rebatch", alone=True)
        try:
            given: list[Any] | None = list(batch_size)
        except TypeError:
            given = None
        if given is None:
            return Batch(rows, check_count("rebatch", "batch_size", batch_size, 1), drop_remainder)
        if not given:
            raise PlanError("rebatch(batch_size=) needs at least one size, got an empty list")
        sizes = tuple([check_count("rebatch", "batch_size", size, 1) for size in given])
        if len(set(sizes)) == 1:
            return Batch(rows, sizes[0], drop_remainder)
        return Rebatch(rows, sum(sizes), drop_remainder, sizes)

    def step(self) -> Rebatcher:
        return Rebatcher(self)

    @property
    def kind(self) -> str:
        return "rebatch"

    @property
    def written(self) -> str:
        return f"{self.kind}({list(self.sizes)})"

    @property
    def cardinality(self) -> int:
        return scaled(self.input.cardinality, self.batches_of)

    def batches_of(self, rows: int) -> int:
        """Return the number of batches for a number of rows."""
        turns, rest = divmod(rows, self.size)
        stops = list(takewhile(lambda stop: stop <= rest, accumulate(self.sizes)))
        short = rest > (stops[-1] if stops else 0) and not self.drop_remainder
        return turns * len(self.sizes) + len(stops) + short

    @property
    def row_count(self) -> None:  # the sizes take turns
        return None

    @property
    def signature(self) -> Any:
        return prefixed(self.input.signature, None)

    def seek(self, count: int) -> Position:
        turns, rest = divmod(count, len(self.sizes))
        return [self.input.seek(turns * self.size + sum(self.sizes[:rest])), rest]

    def reshard(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        return Node.reshard(self, positions, resharding)

    def batched(self, read: float) -> float:
        return read

    def label(self) -> str:
        return f"rebatch({list(self.sizes)}{', drop_remainder=True' if self.drop_remainder else ''})"


class Rebatcher(Batcher):
    """Collects elements, and knows which size is next; that is part of a position."""

    def __init__(self, node: Rebatch) -> None:
        super().__init__(node)
        self.sizes = node.sizes
        self.turn = 0
        self.size: int = self.sizes[0]

    def resume(self, position: Position) -> Start:
        inner, turn = position
        self.turn = natural(turn)
        self.size = self.sizes[self.turn]
        return super().resume([inner])

    def ahead(self) -> Iterator[int]:
        """Yield the sizes of the batches to come, without end."""
        return chain(self.sizes[self.turn :], cycle(self.sizes))

    def need(self, want: int) -> int:
        return sum(islice(self.ahead(), want)) - self.count

    def stops(self) -> Sequence[int]:
        found = list(takewhile(lambda stop: stop <= self.count, accumulate(self.ahead())))
        self.turn = (self.turn + len(found)) % len(self.sizes)
        self.size = self.sizes[self.turn]
        return found

    def feed(self, block: Block) -> Block:
        turn = self.turn
        return self.ticketed(super().feed(block), turn)

    def flush(self) -> Iterator[Block]:
        for block in super().flush():
            yield self.ticketed(block, self.turn)

    def ticketed(self, block: Block, turn: int) -> Block:
        """Return a block whose positions also hold the next size; `turn` is the one before the block."""
        whole, sizes = block.tickets, len(self.sizes)

        def position(count: int, inner: Position) -> Position:
            made = sum(isinstance(whole[place], Tickets) for place in range(count))
            return [*inner, (turn + made) % sizes]

        return Block(block.items, WrappedTickets(whole, position), block.failed)
