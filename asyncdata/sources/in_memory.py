"""Sources in memory: ranges, arrays and lists."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from asyncdata.elements.columns import ColumnBatch
from asyncdata.elements.element_types import T_co
from asyncdata.elements.isolation import isolate, isolated, read_only
from asyncdata.elements.spec import TensorSpec
from asyncdata.elements.structure import (
    as_arrays,
    leading_dimension,
    leaves_of,
    map_leaves,
    slice_rows,
    spec_of,
    unprefixed,
)
from asyncdata.elements.tensors import dataloader_hint, is_tensor
from asyncdata.elements.validation import check_choice, check_dtype
from asyncdata.errors import PlanError, StageError
from asyncdata.executors.element_rng import Chance, drawn_seed, epoch_key, mixed, scrambled
from asyncdata.executors.function_call import ENDLESS, Call, Deadline
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import ELSEWHERE, REPLACEABLE, Node, check_integer, shuffles
from asyncdata.graph.stages import Produce
from asyncdata.options import INFINITE_CARDINALITY
from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.tickets import END, Ordinals, Position, ReplayedTickets, Start, Ticket, Tickets, natural
from asyncdata.sources.hugging_face_rows import rows_getter
from asyncdata.sources.random_access import FEW, IndexedSource, InMemorySource, check_ordinals

__all__ = ("Chosen", "Counter", "Getter", "Items", "Random", "Range", "Sliced", "Slices", "Source", "Tensors")

FOREVER: Final = 1 << 62
"""The number of elements of an infinite source."""


SMALL: Final = 4096
"""Rows whose arrays have more bytes are returned as views, as gathering them would copy them once more."""

INT64: Final = (1 << 63) - 1


class Source(Protocol[T_co]):
    """Elements by number: a list, a NumPy memory map, a PyTorch map-style dataset, your own reader."""

    def __len__(self) -> int:
        """Return how many elements there are."""
        ...

    def __getitem__(self, index: Any, /) -> T_co:
        """Return element `index`."""
        ...


class Sliced(Protocol[T_co]):
    """An array with a shape that is read by slices, as those of HDF5 and Zarr."""

    @property
    def shape(self) -> Any:
        """Return its shape."""
        ...

    def __getitem__(self, index: Any, /) -> T_co:
        """Return some rows."""
        ...


class Getter(Call):
    """Gets elements of a source: several at once if it has `get_batch`, or PyTorch's `__getitems__`.

    A collection holds its elements, so they are treated as those of a list. Other sources make new elements.
    """

    __slots__ = ("get_batch", "holds", "many_at_once", "source")

    def __init__(self, source: Source[Any]) -> None:
        super().__init__("from_source", source.__getitem__, spread=False)
        self.source = source
        self.get_batch = rows_getter(source)
        self.many_at_once = self.get_batch is not None
        self.holds = isinstance(source, Collection)
        self.name = self.label = f"from_source({type(source).__name__} of {len(source)})"

    def call_one(self, item: Any) -> Any:
        return isolate(super().call_one(item)) if self.holds else super().call_one(item)

    def over(self, items: Any, kinds: set[type]) -> Any:
        return map(isolate, super().over(items, kinds)) if self.holds else super().over(items, kinds)

    def run(self, block: Block, term: Deadline = ENDLESS) -> Block:
        if self.get_batch is None or block.failed:
            return super().run(block, term)
        try:
            found = self.get_batch(block.items)
            if isinstance(found, ColumnBatch):
                return Block.of_columns([found], block.tickets)
            items = list(found)
        except (Exception, CancelledError):  # noqa: BLE001  one by one, to find the element that fails
            return super().run(block, term)
        if len(items) != len(block):
            raise StageError(f"{self.name}: it returned {len(items)} elements for {len(block)} indices")
        if isinstance(found, Mapping):
            raise StageError(f"{self.name}: it returned a dict for {len(block)} indices, and not a list of elements")
        return Block(isolated(items) if self.holds else items, block.tickets)


@dataclass(frozen=True, eq=False)
class Range(InMemorySource):
    """Integers from `start` in steps of `step` to before `stop`."""

    values: range
    dtype: np.dtype[Any] | None = None

    @staticmethod
    def of(args: tuple[int, ...], output_type: npt.DTypeLike | None) -> Range:
        """Return the source for the arguments of Python's `range`, with numbers of `output_type` if it is given."""
        try:
            values = range(*args)
        except (TypeError, ValueError) as error:
            raise PlanError(f"Dataset.range{args}: {error}") from None
        dtype = number_dtype("range(output_type=)", output_type)
        if values and dtype is not None and dtype.kind in "iu":
            least, most = sorted((values[0], values[-1]))
            if least < np.iinfo(dtype).min or most > np.iinfo(dtype).max:
                raise PlanError(f"range(output_type={dtype}): numbers from {least} to {most} do not fit")
        return Range(values, dtype)

    def rows(self, start: int, stop: int) -> list[Any]:
        return typed(list(self.values[start:stop]), self.dtype)

    def gather(self, places: Sequence[int], tickets: Tickets) -> Block:
        start, step = self.values.start, self.values.step
        found = list(places) if (start, step) == (0, 1) else [start + step * place for place in places]
        return Block(typed(found, self.dtype), tickets)

    def block(self, start: int, stop: int) -> Block:
        if self.dtype is not None or stop - start < FEW or max(map(abs, (self.values[0], self.values[-1]))) > INT64:
            return super().block(start, stop)
        return Block.of_columns([ColumnBatch.ints(self.values[start:stop])], Ordinals(start, stop))

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def signature(self) -> TensorSpec:
        return TensorSpec((), self.dtype or "int64")

    def label(self) -> str:
        start, stop, step = self.values.start, self.values.stop, self.values.step
        given = (start, stop, step) if step != 1 else (start, stop) if start else (stop,)
        return f"range({', '.join(map(str, given))}{'' if self.dtype is None else f', output_type={self.dtype}'})"


def number_dtype(argument: str, given: npt.DTypeLike | None) -> np.dtype[Any] | None:
    """Return the dtype of the numbers; `None` for Python's integers."""
    dtype = None if given is None else check_dtype(argument, given)
    if dtype is not None and dtype.kind not in "iuf":
        raise PlanError(f"{argument} must be a dtype of integers or floats, got {given!r:.80}")
    return dtype


def typed(numbers: list[int], dtype: np.dtype[Any] | None) -> list[Any]:
    """Return integers as they are, or as NumPy scalars of a dtype that can hold them."""
    return numbers if dtype is None else list(np.array(numbers, dtype))


@dataclass(frozen=True, eq=False)
class Counter(InMemorySource):
    """Integers from `start` in steps of `step`, forever."""

    start: int
    step: int
    dtype: np.dtype[Any] | None = None

    @staticmethod
    def of(start: int, step: int, dtype: npt.DTypeLike | None) -> Counter:
        """Return the source for the user's arguments."""
        begin, by = check_integer("counter", "start", start), check_integer("counter", "step", step)
        return Counter(begin, by, number_dtype("counter(dtype=)", dtype))

    def rows(self, start: int, stop: int) -> list[Any]:
        numbers = [self.start + self.step * row for row in range(start, stop)]
        return numbers if self.dtype is None else list(np.array(numbers, np.int64).astype(self.dtype))

    @property
    def size(self) -> int:
        return FOREVER

    @property
    def cardinality(self) -> int:
        return INFINITE_CARDINALITY

    @property
    def signature(self) -> TensorSpec:
        return TensorSpec((), self.dtype or "int64")


@dataclass(frozen=True, eq=False)
class Random(IndexedSource):
    """Random integers below 2**32, forever: each is a hash of its index, so that any can be computed at once."""

    seed: int = field(repr=False, metadata=ELSEWHERE)
    rerandomize: bool = False
    drawn: bool = field(default=False, repr=False, metadata=ELSEWHERE)

    @staticmethod
    def of(seed: int | None, rerandomize: bool | None) -> Random:
        """Return the source for the user's arguments."""
        chosen = drawn_seed() if seed is None else check_integer("random", "seed", seed)
        anew = bool(check_choice("random", "rerandomize_each_iteration", rerandomize))
        return Random(chosen, anew, seed is None)

    @property
    def chance(self) -> Chance:
        return Chance(self.seed, self.drawn)

    def stage(self) -> Produce:
        return Produce(self.blocks, waits=False)

    async def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        """Yield the numbers that are requested, again and again; they are computed in larger chunks."""
        start, key = 0 if position is None else self.parse_position(position, natural), self.key(scope)
        while True:
            items: list[int] = (mixed(start, start + max(want.items, 64), key) >> np.uint64(32)).tolist()
            while items:
                part, items = items[: want.items], items[want.items :]
                yield Block(part, Ordinals(start, start + len(part)))
                start += len(part)

    async def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        done, key = 0, self.key(scope)
        check_ordinals(self, tickets)
        while done < len(tickets):
            some = tickets[done : done + want.items]
            done += len(some)
            items: list[int] = (scrambled(np.array(list(some), np.uint64), key) >> np.uint64(32)).tolist()
            yield Block(items, ReplayedTickets(some, 0, len(some), END))

    def key(self, scope: Scope) -> int:
        """Return the key of an epoch's numbers."""
        return epoch_key(self.seed, scope.epoch if self.rerandomize else ())

    @property
    def cardinality(self) -> int:
        return INFINITE_CARDINALITY

    @property
    def signature(self) -> TensorSpec:
        return TensorSpec((), "int64")

    def label(self) -> str:
        return f"random({'rerandomize_each_iteration=True' if self.rerandomize else ''})"


@dataclass(frozen=True, eq=False)
class Slices(InMemorySource):
    """The rows of a structure of arrays: read-only views, nothing is copied."""

    arrays: Any = field(repr=False, metadata=REPLACEABLE)
    count: int
    plain: bool = field(default=False, repr=False, metadata=REPLACEABLE)
    """Whether all are arrays of numbers, so that rows can stay in arrays until elements are needed."""

    @staticmethod
    def of(tensors: Any, *leaves: type[Any]) -> Slices:
        """Return the source for the rows of a structure of arrays or lists; the types `leaves` are not converted."""
        arrays = as_arrays(tensors, *leaves, tensors=True)
        rows, problem = leading_dimension(arrays)
        if problem is not None:
            raise PlanError(f"from_tensor_slices: {problem}; every leaf needs the same number of rows")
        return Slices(arrays, rows, ColumnBatch.of(arrays) is not None)

    def rows(self, start: int, stop: int) -> list[Any]:
        rows = slice_rows(self.slice(start, stop), 0, stop - start)
        return rows if self.plain else isolated(rows)

    def slice(self, start: int, stop: int) -> Any:
        """Return some rows of all arrays as read-only views."""
        return map_leaves(lambda leaf, _: isolate(leaf[start:stop]) if self.plain else leaf[start:stop], self.arrays)

    def block(self, start: int, stop: int) -> Block:
        if not self.plain or stop - start < FEW:
            return super().block(start, stop)
        return Block.of_columns([ColumnBatch(self.slice(start, stop), stop - start)], Ordinals(start, stop))

    def gather(self, places: Sequence[int], tickets: Tickets) -> Block:
        columns = self.columns if len(places) >= FEW and (self.plain or self.is_flat) else None
        if columns is None or columns.weight > SMALL * len(leaves_of(self.arrays)):
            return super().gather(places, tickets)
        found = columns.at(places)
        return Block.of_columns([found], tickets) if self.plain else Block(isolated(found.elements()), tickets)

    @property
    def is_flat(self) -> bool:
        """Whether rows consist of numbers, strings, records and other objects."""
        return all(type(leaf) is np.ndarray and leaf.ndim == 1 for leaf in leaves_of(self.arrays))

    @property
    def columns(self) -> ColumnBatch:
        return ColumnBatch(map_leaves(lambda leaf, _: read_only(leaf), self.arrays), self.count)

    @property
    def size(self) -> int:
        return self.count

    @property
    def signature(self) -> Any:
        return unprefixed(spec_of(self.arrays))[1] if all(map(has_known_dtype, leaves_of(self.arrays))) else None

    def label(self) -> str:
        return f"from_tensor_slices({self.count} rows)"


def has_known_dtype(leaf: Any) -> bool:
    """Return whether the array's dtype is that of its rows; arrays of objects may hold arrays or numbers."""
    return (
        is_tensor(leaf)
        or leaf.dtype != object
        or not len(leaf)
        or spec_of(leaf[0]) == TensorSpec(leaf.shape[1:], object)
    )


@dataclass(frozen=True, eq=False)
class Tensors(InMemorySource):
    """One element."""

    element: Any = field(repr=False, metadata=REPLACEABLE)

    def rows(self, start: int, stop: int) -> list[Any]:
        return [isolate(self.element)][start:stop]

    @property
    def size(self) -> int:
        return 1

    @property
    def signature(self) -> Any:
        return spec_of(self.element)

    def label(self) -> str:
        return "from_tensors()"


@dataclass(frozen=True, eq=False)
class Items(InMemorySource):
    """The items of a list; arrays in them become read-only views."""

    items: Sequence[Any] = field(repr=False, metadata=REPLACEABLE)

    def rows(self, start: int, stop: int) -> list[Any]:
        return isolated(list(self.items[start:stop]))

    def gather(self, places: Sequence[int], tickets: Tickets) -> Block:
        return Block(isolated([self.items[place] for place in places]), tickets)

    @property
    def is_in_memory(self) -> bool:
        return type(self.items) in (list, tuple, range, str, bytes)

    @property
    def size(self) -> int:
        return len(self.items)

    def label(self) -> str:
        return f"from_iterable({type(self.items).__name__} of {len(self.items)})"


@dataclass(frozen=True, eq=False)
class Chosen(Node):
    """The elements at some indices of a plan with random access."""

    input: Node
    places: Sequence[int]

    @staticmethod
    def of(plan: Node, index: int) -> Chosen:
        """Return the plan that gives one element of another."""
        size = plan.cardinality
        if not plan.random_access:
            raise PlanError(
                f"at() needs random access, which {plan.label()} does not support{shuffles(plan)}{dataloader_hint()}"
            )
        place = check_integer("at", "index", index) + (size if index < 0 and size >= 0 else 0)
        if place < 0 or 0 <= size <= place:
            raise IndexError(f"there is no element {index}: the dataset has {size}")
        return Chosen(plan, (place,))

    def stage(self) -> Produce:
        return Produce(self.blocks, waits=False)

    def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        """Fetch the elements."""
        return self.input.open(scope, want, Start(END, self.input.address(self.places)))
