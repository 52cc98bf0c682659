"""Sources that are in memory: ranges, arrays and lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any, Final, Protocol

from asyncdata.errors import PlanError, StageError
from asyncdata.options import INFINITE_CARDINALITY
from asyncdata.plan import Node, check_integer
from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.executors import Call
from asyncdata.runtime.scope import Scope
from asyncdata.runtime.stage import Produce
from asyncdata.runtime.tickets import END, Given, Ordinals, Position, Start, Ticket
from asyncdata.sources.files import Files
from asyncdata.structure import TensorSpec, as_arrays, leading, slice_rows, spec_of

__all__ = ("FOREVER", "Chosen", "Counter", "Getter", "Items", "Range", "Rows", "Slices", "Source", "Tensors")

FOREVER: Final = 1 << 62
"""How many elements an endless source has."""


class Source(Protocol):
    """What has elements by number: a list, a NumPy memory map, a PyTorch map-style dataset, a reader of your own."""

    def __len__(self) -> int:
        """Return how many elements there are."""
        ...

    def __getitem__(self, index: Any, /) -> Any:
        """Return element `index`."""
        ...


class Getter(Call):
    """Gets elements of a source: all that are wanted at once where it has `get_batch`."""

    __slots__ = ("source",)

    def __init__(self, source: Source) -> None:
        super().__init__("from_source", source.__getitem__, spread=False)
        self.source = source
        self.name = self.label = f"from_source({type(source).__name__} of {len(source)})"

    def run(self, block: Block) -> Block:
        get_batch = getattr(self.source, "get_batch", None)
        if get_batch is None or block.failed:
            return super().run(block)
        try:
            items = list(get_batch(block.items))
        except Exception:  # noqa: BLE001  one by one, to find out for which element
            return super().run(block)
        if len(items) != len(block):
            raise StageError(f"{self.name}: get_batch returned {len(items)} elements for {len(block)} indices")
        return Block(items, block.tickets)


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

    @property
    def addressable(self) -> bool:
        return True

    def address(self, places: Sequence[int]) -> Sequence[Ticket]:
        return places

    def seek(self, count: int) -> Position:
        return count

    def gather(self, places: Sequence[int]) -> list[Any]:
        """Return the rows at some places."""
        return [self.rows(place, place + 1)[0] for place in places]

    def stage(self) -> Produce:
        return Produce(self.blocks)

    async def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        done = 0
        while done < len(tickets):
            some = tickets[done : done + want.items]
            done += len(some)
            yield Block(self.gather(some), Given(some, 0, len(some), END))

    async def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        """Yield as many rows as are wanted, again and again."""
        start, size = self.told(position or 0, index), self.size
        while start < size:
            stop = min(size, start + want.items)
            yield Block(self.rows(start, stop), Ordinals(start, stop))
            start = stop


@dataclass(frozen=True, eq=False)
class Range(Rows):
    """Integers from `start` in steps of `step` to before `stop`."""

    values: range

    @staticmethod
    def of(args: tuple[int, ...]) -> Range:
        """Return the source for the arguments of Python's `range`."""
        try:
            return Range(range(*args))
        except (TypeError, ValueError) as error:
            raise PlanError(f"Dataset.range{args}: {error}") from None

    def rows(self, start: int, stop: int) -> list[int]:
        return list(self.values[start:stop])

    def gather(self, places: Sequence[int]) -> list[int]:
        start, step = self.values.start, self.values.step
        return list(places) if (start, step) == (0, 1) else [start + step * place for place in places]

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

    @staticmethod
    def of(tensors: Any) -> Slices:
        """Return the source for the rows of a structure of arrays or lists."""
        arrays = as_arrays(tensors)
        rows, problem = leading(arrays)
        if problem is not None:
            raise PlanError(f"from_tensor_slices: {problem}; every leaf needs the same number of rows")
        return Slices(arrays, rows)

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
    files: bool = False
    method: str = "from_iterable"

    def rows(self, start: int, stop: int) -> list[Any]:
        return list(self.items[start:stop])

    def gather(self, places: Sequence[int]) -> list[Any]:
        return [self.items[place] for place in places]

    @property
    def size(self) -> int:
        return len(self.items)

    def label(self) -> str:
        return f"{self.method}({type(self.items).__name__} of {len(self.items)})"

    @property
    def identity(self) -> str:
        """The label, and for names what tells them and the sizes of the files that they name from others."""
        return str(Files.of(self.items)) if self.files else self.label()

    def difference(self, words: str) -> str:
        was = Files.told(words) if self.files else None
        return "" if was is None else was.difference(self.items)


@dataclass(frozen=True, eq=False)
class Chosen(Node):
    """The elements at some places of an addressable plan."""

    input: Node
    places: Sequence[int]

    @staticmethod
    def of(plan: Node, index: int) -> Chosen:
        """Return the plan that gives one element of another."""
        size = plan.cardinality
        if not plan.addressable:
            raise PlanError(f"at() needs elements that can be had in any order, which {plan.label()} does not give")
        place = check_integer("at", "index", index) + (size if index < 0 and size >= 0 else 0)
        if place < 0 or 0 <= size <= place:
            raise IndexError(f"there is no element {index}: the dataset has {size}")
        return Chosen(plan, (place,))

    def stage(self) -> Produce:
        return Produce(self.blocks)

    def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        """Fetch the elements."""
        return self.input.open(scope, want, Start(END, self.input.address(self.places)))
