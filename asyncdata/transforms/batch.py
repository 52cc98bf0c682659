"""batch and unbatch: consecutive elements stacked into one, and taken apart again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from asyncdata.errors import StructureError
from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.plan import Unary, scaled
from asyncdata.runtime.block import Block, Failure, Ticket, Tickets, children
from asyncdata.runtime.executors import noted
from asyncdata.runtime.stage import Fold, Step
from asyncdata.structure import prefixed, stack, unstack

__all__ = ("Batch", "Unbatch")


@dataclass(frozen=True, eq=False)
class Batch(Unary):
    """Every `size` consecutive elements as one, their leaves stacked along a new first axis."""

    size: int
    drop_remainder: bool = False

    def stage(self) -> Fold:
        return Fold(lambda _: Batcher(self.size, self.drop_remainder))

    @property
    def cardinality(self) -> int:
        whole = 0 if self.drop_remainder else self.size - 1
        return scaled(self.input.cardinality, lambda count: (count + whole) // self.size)

    @property
    def signature(self) -> Any:
        return prefixed(self.input.signature, self.size if self.drop_remainder else None)


class Batcher(Step):
    """Collects elements. A failure passes at once and leaves the batch under construction as it is."""

    def __init__(self, size: int, drop_remainder: bool) -> None:
        self.size = size
        self.drop_remainder = drop_remainder
        self.held: list[Block] = []
        self.count = 0

    def need(self, want: int) -> int:
        return want * self.size - self.count

    def feed(self, block: Block) -> Block:
        done: list[Any] = []
        tickets: list[Ticket] = []
        failed = False
        for piece in block.pieces():
            if piece.failed:
                done.append(piece.items[0])
                tickets.append(piece.tickets[0])
                failed = True
                continue
            self.held.append(piece)
            self.count += len(piece)
            if self.count >= self.size:
                failed |= self.cut(done, tickets)
        return Block(done, tickets, failed)

    def cut(self, done: list[Any], tickets: list[Ticket]) -> bool:
        """Move every full batch that is held to `done`; return whether one could not be stacked."""
        whole = Block.join(self.held)
        failed = False
        end = self.count - self.count % self.size
        for start in range(0, end, self.size):
            part = whole.tickets[start : start + self.size]
            batch = stacked(whole.items[start : start + self.size], part)
            failed |= type(batch) is Failure
            done.append(batch)
            tickets.append(part)
        self.count -= end
        self.held = [whole.part(end, len(whole))] if self.count else []
        return failed

    def flush(self) -> Iterator[Block]:
        if self.held and not self.drop_remainder:
            whole = Block.join(self.held)
            batch = stacked(whole.items, whole.tickets)
            yield Block([batch], [whole.tickets], type(batch) is Failure)


def stacked(items: list[Any], tickets: Tickets) -> Any:
    """Stack a batch, or return the failure in its place."""
    try:
        return stack(items)
    except (StructureError, ValueError, TypeError, MemoryError) as error:
        return noted(error, f"batch({len(items)})", tickets)


@dataclass(frozen=True, eq=False)
class Unbatch(Unary):
    """The elements that the leaves of each element hold along their first axis."""

    def stage(self) -> Fold:
        return Fold(lambda _: Unbatcher())

    @property
    def signature(self) -> None:
        return None

    @property
    def cardinality(self) -> int:
        return 0 if self.input.cardinality == 0 else UNKNOWN_CARDINALITY


class Unbatcher(Step):
    """Takes elements apart, one at a time, so that no more is unpacked than is wanted."""

    def need(self, want: int) -> int:
        return 1

    def feed(self, block: Block) -> Block:
        if block.failed:
            return block
        try:
            items = unstack(block.items[0])
        except StructureError as error:
            return Block([noted(error, "unbatch()", block.tickets[0])], block.tickets, True)
        return Block(items, children(block.tickets[0], range(len(items))))
