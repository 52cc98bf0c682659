"""Sources that are in memory: ranges, arrays and lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from asyncdata.options import INFINITE_CARDINALITY
from asyncdata.plan import Node
from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.scope import Scope
from asyncdata.runtime.stage import Produce
from asyncdata.runtime.tickets import END, Given, Ordinals, Position, Ticket
from asyncdata.structure import TensorSpec, slice_rows, spec_of

__all__ = ("Counter", "Items", "Range", "Slices", "Tensors")

FOREVER = 1 << 62


class Rows(Node):
    """A source whose rows can be read by position."""

    def rows(self, start: int, stop: int) -> list[Any]:
        """Return rows `start` to `stop`."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """How many rows there are."""
        raise NotImplementedError

    @property
    def cardinality(self) -> int:
        return self.size

    def stage(self) -> Produce:
        return Produce(self.blocks)

    async def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        done = 0
        while done < len(tickets):
            some = tickets[done : done + want.items]
            done += len(some)
            yield Block([self.rows(row, row + 1)[0] for row in some], Given(some, 0, len(some), END))

    async def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        """Yield as many rows as are wanted, again and again."""
        start, size = position or 0, self.size
        while start < size:
            stop = min(size, start + want.items)
            yield Block(self.rows(start, stop), Ordinals(start, stop))
            start = stop


@dataclass(frozen=True, eq=False)
class Range(Rows):
    """Integers from `start` in steps of `step` to before `stop`."""

    values: range

    def rows(self, start: int, stop: int) -> list[int]:
        return list(self.values[start:stop])

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def signature(self) -> TensorSpec:
        return TensorSpec((), "int64")

    def label(self) -> str:
        start, stop, step = self.values.start, self.values.stop, self.values.step
        given = (start, stop, step) if step != 1 else (start, stop) if start else (stop,)
        return f"range({', '.join(map(str, given))})"


@dataclass(frozen=True, eq=False)
class Counter(Rows):
    """Integers from `start` in steps of `step`, for ever."""

    start: int
    step: int

    def rows(self, start: int, stop: int) -> list[int]:
        return [self.start + self.step * row for row in range(start, stop)]

    @property
    def size(self) -> int:
        return FOREVER

    @property
    def cardinality(self) -> int:
        return INFINITE_CARDINALITY

    @property
    def signature(self) -> TensorSpec:
        return TensorSpec((), "int64")


@dataclass(frozen=True, eq=False)
class Slices(Rows):
    """The rows of a structure of arrays: views, nothing is copied."""

    arrays: Any = field(repr=False)
    count: int

    def rows(self, start: int, stop: int) -> list[Any]:
        return slice_rows(self.arrays, start, stop)

    @property
    def size(self) -> int:
        return self.count

    @property
    def signature(self) -> Any:
        return spec_of(self.rows(0, 1)[0]) if self.count else None

    def label(self) -> str:
        return f"from_tensor_slices({self.count} rows)"


@dataclass(frozen=True, eq=False)
class Tensors(Rows):
    """One element."""

    element: Any = field(repr=False)

    def rows(self, start: int, stop: int) -> list[Any]:
        return [self.element][start:stop]

    @property
    def size(self) -> int:
        return 1

    @property
    def signature(self) -> Any:
        return spec_of(self.element)

    def label(self) -> str:
        return "from_tensors()"


@dataclass(frozen=True, eq=False)
class Items(Rows):
    """The items of a list, as they are."""

    items: Sequence[Any] = field(repr=False)

    def rows(self, start: int, stop: int) -> list[Any]:
        return list(self.items[start:stop])

    @property
    def size(self) -> int:
        return len(self.items)

    def label(self) -> str:
        return f"from_iterable({type(self.items).__name__} of {len(self.items)})"

    @property
    def identity(self) -> str:
        """The label, and for a list of names (of files) a hash of them."""
        if not all(isinstance(item, str) for item in self.items):
            return self.label()
        return f"{self.label()} #{blake2b(repr(list(self.items)).encode(), digest_size=4).hexdigest()}"
