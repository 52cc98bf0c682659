"""skip: all but the first elements. A failed element has its position like any other.

The failure of a source is not skipped: how many elements it replaces is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from asyncdata.errors import ResumeError
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import PlaceBelow, Unary, scaled
from asyncdata.graph.stages import Fold, Step
from asyncdata.runtime.block import Block
from asyncdata.runtime.tickets import END, Position, Start, Ticket, natural

__all__ = ("Skip",)


@dataclass(frozen=True, eq=False)
class Skip(Unary):
    """All but the first `count` elements; none if `count` is -1."""

    count: int

    def stage(self) -> Fold:
        return Fold(lambda _: Skipper(self.count))

    @property
    def random_access(self) -> bool:
        return self.input.random_access and self.count >= 0

    def address(self, places: Sequence[int]) -> Sequence[Ticket]:
        return self.input.address([place + self.count for place in places])

    def place_below(self, position: Position) -> PlaceBelow | None:
        if isinstance(position, dict) and "to_skip" in position:
            return None
        return PlaceBelow(position, max(0, self.count))

    def check_back(self, scope: Scope, start: Start) -> None:
        super().check_back(scope, start)
        if self.input.gives_all and any(isinstance(number, int) and number < self.count for number in start.back):
            raise ResumeError(
                f"{self.label()}: the state lists elements as read that this step skips (the state is damaged; start "
                "without it)"
            )

    def seek(self, count: int) -> Position:
        return END if self.count < 0 else self.input.seek(self.count + count)

    @property
    def cardinality(self) -> int:
        if self.count < 0:
            return 0
        return scaled(self.input.cardinality, lambda count: max(0, count - self.count))


AT_ONCE: Final = 1024
"""How many elements are made at once to be dropped: of more the first are in no cache any more by then."""

ROWS_AT_ONCE: Final = 4096
"""How many small rows of columns, which are never made elements."""

SMALL: Final = 256
"""The maximum size of such a row in bytes."""


class Skipper(Step):
    """Drops until it has dropped enough."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.done = count < 0
        self.at_once = AT_ONCE

    def resume(self, position: Position) -> Start:
        self.left = 0
        if isinstance(position, dict) and "to_skip" in position:  # right after the failure of a source
            left = cast("dict[str, Any]", position)
            self.left, position = natural(left["to_skip"]), left["input"]
        return Start.of(position)

    def need(self, want: int) -> int:
        return min(self.left, self.at_once) or want

    def feed(self, block: Block) -> Block:
        size = len(block)
        part = block.after_skip(self.left, step=True)
        if self.left >= size:
            self.at_once = ROWS_AT_ONCE if block.columns and block.weight <= SMALL else AT_ONCE
        self.left = max(0, self.left - size)
        return part
