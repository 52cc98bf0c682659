"""assert_cardinality and pad_to_cardinality: as many elements as the user states, or an error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, cast, final

import numpy as np
import numpy.typing as npt

from asyncdata.elements.ragged import Ragged
from asyncdata.elements.spec import RaggedTensorSpec, TensorSpec
from asyncdata.elements.structure import map_leaves, objects
from asyncdata.elements.tensors import is_tensor, tensor_zeros
from asyncdata.errors import PlanError, StageError, StructureError
from asyncdata.executors.function_call import noted
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import Node, PlaceBelow, Unary, check_count
from asyncdata.graph.stages import Fold, Step
from asyncdata.options import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.tickets import (
    END,
    ExplicitTickets,
    Position,
    ReplayedTickets,
    Start,
    Ticket,
    Tickets,
    TicketWrapper,
    WrappedTickets,
    decode_all,
    encode_all,
    natural,
)
from asyncdata.transforms.shard import is_padding

__all__ = ("AssertCardinality", "PadToCardinality")

ENDLESS: Final = 1 << 62


@dataclass(frozen=True, eq=False)
class AssertCardinality(Unary):
    """The input, which has `expected` elements; it is an error if there are more or fewer."""

    expected: int

    @staticmethod
    def of(plan: Node, expected: Any) -> AssertCardinality:
        """Return the node for the user's number; `PlanError` if the plan shows another number."""
        special = (INFINITE_CARDINALITY,)
        count = check_count("assert_cardinality", "expected_cardinality", expected, 0, special)
        if plan.cardinality not in (UNKNOWN_CARDINALITY, count):
            raise PlanError(f"assert_cardinality({shown(count)}): the dataset has {shown(plan.cardinality)} elements")
        return AssertCardinality(plan, count)

    def stage(self) -> Fold:
        return Fold(lambda _: Counter(self.expected))

    @property
    def cardinality(self) -> int:
        return self.expected

    @property
    def random_access(self) -> bool:
        return self.input.random_access

    def address(self, places: Sequence[int]) -> Sequence[Ticket]:
        return self.input.address(places)

    def seek(self, count: int) -> Position:
        beyond = 0 <= self.expected < count
        inner = self.input.seek(self.expected if beyond else count)  # as in `Take`
        return END if beyond else [count, inner]

    def label(self) -> str:
        return f"assert_cardinality({shown(self.expected)})"


def shown(cardinality: int) -> str:
    return "INFINITE_CARDINALITY" if cardinality == INFINITE_CARDINALITY else str(cardinality)


class Counter(Step):
    """Counts elements, failed ones too; ends the pipeline with an error if they are not as many as expected."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.left = ENDLESS if expected < 0 else expected

    @property
    def come(self) -> int:
        """How many have come."""
        return (ENDLESS if self.expected < 0 else self.expected) - self.left

    def resume(self, position: Position) -> Start:
        come, inner = position
        self.left = natural(self.left - natural(come))
        return Start.of(inner)

    def need(self, want: int) -> int:
        return min(want, max(self.left, 1))

    def feed(self, block: Block) -> Block:
        if not self.left:
            raise StageError(f"assert_cardinality({shown(self.expected)}): there are more elements")
        come = self.come
        self.left -= len(block)
        return Block(
            block.items, WrappedTickets(block.tickets, lambda count, inner: [come + count, inner]), block.failed
        )

    def flush(self) -> Iterator[Block]:
        if self.left:
            raise StageError(
                f"assert_cardinality({shown(self.expected)}): the dataset ended after {self.come} elements"
            )
        return iter(())


@dataclass(frozen=True, eq=False)
class PadToCardinality(Unary):
    """The input with a mask, and zeros of the last element's shapes after it until there are `count`."""

    count: int
    mask_key: str = "valid"

    @staticmethod
    def of(plan: Node, count: Any, mask_key: str) -> PadToCardinality:
        """Return the node for the user's arguments."""
        count = check_count("pad_to_cardinality", "cardinality", count, 0)
        if plan.cardinality > count or plan.cardinality == INFINITE_CARDINALITY:
            raise PlanError(
                f"pad_to_cardinality({count}): the dataset has {shown(plan.cardinality)} elements; take({count}) first"
            )
        return PadToCardinality(plan, count, mask_key)

    @property
    def holds(self) -> int:
        return 1  # the last element, which padding is like

    def stage(self) -> Fold:
        return Fold(lambda _: Padder(self))

    @property
    def cardinality(self) -> int:
        return self.count

    @property
    def signature(self) -> None:
        return None

    def label(self) -> str:
        mask = "" if self.mask_key == "valid" else f", mask_key={self.mask_key!r}"
        return f"pad_to_cardinality({self.count}{mask})"

    def place_below(self, position: Position) -> PlaceBelow:
        come, inner, _ = position
        given = self.input.read_before(END) if inner == END else None  # padding has come after those
        return PlaceBelow(inner, natural(come) if given is None else min(natural(come), given), exactly=True)

    def marked(self, items: Sequence[Any], tickets: Tickets, valid: Sequence[bool]) -> list[Any]:
        """Return elements with their mask; those that are not valid as zeros."""
        return [
            item if type(item) is Failure else self.with_mask(item, tickets[place], valid[place])
            for place, item in enumerate(items)
        ]

    def with_mask(self, item: Any, ticket: Ticket, valid: bool) -> Any:
        """Return one element with its mask: in a dict under its key, else as a pair."""
        item = item if valid else zeros_like(item)
        if type(item) is not dict:
            return (item, valid)
        named = cast("dict[Any, Any]", item)
        if self.mask_key in named:
            error = StructureError(f"the element already has a part {self.mask_key!r}; give another mask_key")
            return noted(error, self.label(), ticket)
        return {**named, self.mask_key: valid}

    def empty_element(self) -> Any:
        """Return the element to pad an empty dataset with."""
        if self.input.signature is None:
            raise StageError(f"{self.label()}: the dataset is empty, so the structure of its elements is not known")
        return zeros_of(self.input.signature)

    async def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Give elements again, and make zeros again of the element that each padding is like."""
        models = [ticket[1] if is_padding(ticket) else ticket for ticket in tickets]
        if models[0] is None:
            for place in range(len(tickets)):
                given = ReplayedTickets(tickets, place, place + 1, END)
                yield Block([self.with_mask(self.empty_element(), tickets[place], False)], given)
            return
        done = 0
        async with aclosing(self.input.open(scope, want, Start(END, models))) as source:
            async for block in source:
                given = ReplayedTickets(tickets, done, done + len(block), END)
                done += len(block)
                valid = [not is_padding(ticket) for ticket in given]
                items = self.marked(block.items, given, valid)
                yield Block(items, given, Failure in set(map(type, items)))


@final
class PaddedTickets(TicketWrapper):
    """The tickets of marked elements, with how many came before them and which was the last good one."""

    __slots__ = ("come", "good", "model")

    def __init__(self, base: Tickets, come: int, model: list[Ticket], good: list[int] | None) -> None:
        super().__init__(base)
        self.come = come
        self.model = model
        self.good = good

    def at(self, count: int) -> Position:
        place = count - 1 if self.good is None else max([place for place in self.good if place < count], default=-1)
        model = self.model if place < 0 else [self.base[place]]
        return [self.come + count, self.base.at(count), encode_all(model)]


class Model:
    """The last good element and its ticket, `None` before there is one."""

    def __init__(self, ticket: list[Ticket], item: Any = None) -> None:
        self.ticket = ticket
        self.item = item


class Padder(Step):
    """Marks elements, and makes up for those that are missing when the input ends."""

    def __init__(self, node: PadToCardinality) -> None:
        self.node = node
        self.come = 0
        self.model = Model([])
        self.expected = 0  # the model, which comes once more

    def resume(self, position: Position) -> Start:
        come, inner, model = position
        self.come = natural(come)
        if self.come > self.node.count:
            raise ValueError(f"{self.come} elements are more than {self.node.count}")
        tickets = decode_all(model)
        self.expected = len(tickets)
        return Start.of(inner, tickets)

    def need(self, want: int) -> int:
        return self.expected + min(want, max(self.node.count - self.come, 1))

    def feed(self, block: Block) -> Block:
        if self.expected:
            self.model = Model([block.tickets[0]], block.items[0])
            block, self.expected = block.slice(1, len(block)), 0
            if not block.items:
                return block
        if self.come >= self.node.count:
            raise StageError(f"{self.node.label()}: there are more elements; take({self.node.count}) first")
        good = block.good_places()
        tickets = PaddedTickets(block.tickets, self.come, self.model.ticket, good if block.failed else None)
        items = self.node.marked(block.items, block.tickets, [True] * len(block))
        if good:
            self.model = Model([block.tickets[good[-1]]], block.items[good[-1]])
        self.come += len(block)
        return Block(items, tickets, block.failed or Failure in set(map(type, items)))

    def flush(self) -> Iterator[Block]:
        while self.come < self.node.count:
            yield self.padding(min(256, self.node.count - self.come))

    def padding(self, count: int) -> Block:
        """Return the next elements that are none."""
        node, come, model = self.node, self.come, self.model
        item = model.item if model.ticket else node.empty_element()

        def position(done: int) -> Position:
            return END if come + done == node.count else [come + done, END, encode_all(model.ticket)]

        self.come += count
        like = model.ticket[0] if model.ticket else None
        tickets = ExplicitTickets([("padding", like, number) for number in range(come, come + count)], position)
        items = [node.with_mask(item, tickets[place], False) for place in range(count)]
        return Block(items, tickets, Failure in set(map(type, items)))


def zeros_like(value: Any) -> Any:
    """Return the structure with zeros of the same shapes and types: empty strings, `None` for other objects."""
    return map_leaves(lambda part, _: zero(part), value)


def zeros(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.zeros(array.shape, array.dtype)


def zero(part: Any) -> Any:
    kind: type[Any] = type(part)  # pyright: ignore[reportUnknownVariableType]
    if issubclass(kind, np.ndarray):
        return objects([zero(one) for one in part.ravel()]).reshape(part.shape) if part.dtype == object else zeros(part)
    if issubclass(kind, np.generic):
        return np.zeros((), part.dtype)[()]
    if kind is list:
        return [zero(one) for one in part]
    if kind is Ragged:
        return Ragged(zero(part.values), part.row_splits)
    if is_tensor(part):
        return tensor_zeros(part)
    return kind() if issubclass(kind, (bool, int, float, complex, str, bytes, bytearray)) else None


def zeros_of(signature: Any) -> Any:
    """Return zeros for a signature; an unknown dimension has size 0."""

    def make(spec: TensorSpec, _: str) -> Any:
        if spec.dtype == object and not spec.shape:
            return None
        if isinstance(spec, RaggedTensorSpec):
            rows, *inner = [size or 0 for size in (spec.shape or (0, 0))]
            return Ragged(np.zeros(inner, spec.dtype), np.zeros(rows + 1, np.int64))
        array = np.zeros([size or 0 for size in spec.shape or ()], spec.dtype)
        return array if array.ndim else array[()]

    return map_leaves(make, signature)
