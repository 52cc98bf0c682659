"""take: the first elements. A failed element has its position like any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from asyncdata.graph.node import PlaceBelow, Unary, scaled
from asyncdata.graph.stages import Fold, Step
from asyncdata.options import INFINITE_CARDINALITY
from asyncdata.runtime.block import Block
from asyncdata.runtime.resharding import listed
from asyncdata.runtime.tickets import END, Position, Start, Ticket, WrappedTickets, natural

__all__ = ("Take",)


@dataclass(frozen=True, eq=False)
class Take(Unary):
    """The first `count` elements; all if `count` is -1."""

    count: int

    def stage(self) -> Fold:
        return Fold(lambda _: Taker(self.count))

    @property
    def random_access(self) -> bool:
        return self.input.random_access

    def address(self, places: Sequence[int]) -> Sequence[Ticket]:
        return self.input.address(places)

    @property
    def cardinality(self) -> int:
        if self.count < 0 or self.count == 0:
            return self.input.cardinality if self.count else 0
        known = self.input.cardinality
        return self.count if known == INFINITE_CARDINALITY else scaled(known, lambda size: min(size, self.count))

    @property
    def gives_all(self) -> bool:
        return self.input.gives_all

    def read_before(self, position: Position) -> int | None:
        if position == END:
            known = self.gives_all and self.input.read_before(END) is not None
            return self.cardinality if known else None
        return self.input.read_before(position if self.count < 0 else listed(position)[-1])

    def place_below(self, position: Position) -> PlaceBelow | None:
        if self.count < 0 or not isinstance(position, list):
            return None
        taken, inner = cast("list[Any]", position)
        return PlaceBelow(inner, taken, exactly=True)

    def seek(self, count: int) -> Position:
        if self.count < 0:
            return self.input.seek(count)
        inner = self.input.seek(min(count, self.count))  # not sought if it cannot be: its source may fail
        return [count, inner] if count < self.count else END


EVERYTHING: Final = 1 << 62


class Taker(Step):
    """Counts down; asks its input for no more than is left."""

    def __init__(self, count: int) -> None:
        self.count = count if count >= 0 else EVERYTHING
        self.left = self.count
        self.done = self.left == 0

    def resume(self, position: Position) -> Start:
        if self.count == EVERYTHING:
            return Start.of(position)
        taken, inner = position
        self.left = natural(self.count - natural(taken))
        self.done = self.left == 0
        return Start.of(inner)

    def need(self, want: int) -> int:
        return min(want, self.left)

    def feed(self, block: Block) -> Block:
        if self.count == EVERYTHING:
            return block
        part = block if len(block) <= self.left else block.slice(0, self.left)
        taken = self.count - self.left
        self.left -= len(part)
        self.done = self.left == 0
        return part.ticketed(WrappedTickets(part.tickets, lambda count, inner: [taken + count, inner]))
