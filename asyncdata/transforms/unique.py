"""unique: each element once, where it comes first."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from operator import ne
from typing import Any, Final, TypeAlias, cast, final

import numpy as np
import numpy.typing as npt

from asyncdata.elements.array_content import array_content
from asyncdata.elements.ragged import Ragged
from asyncdata.elements.structure import leaves_of, open_level
from asyncdata.elements.tensors import any_tensor, is_tensor, tensor_content
from asyncdata.executors.function_call import noted
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import Unary, beginning
from asyncdata.graph.stages import Fold, Step
from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.tickets import (
    END,
    FRESH,
    FilteredTickets,
    Position,
    SelectedTickets,
    Start,
    Ticket,
    Tickets,
    natural,
    replaying,
)
from asyncdata.transforms.keyed import has_nan, one_nan

__all__ = ("Unique",)

PLAIN: Final = frozenset({int, float, bool, str, bytes, type(None)})
"""Types of values without parts."""


@dataclass(frozen=True, eq=False)
class Unique(Unary):
    """The elements that are equal to none before them."""

    def stage(self) -> Fold:
        return Fold(lambda _: SeenElements(self))

    async def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Give elements again; one that cannot be compared with others fails again."""
        async with aclosing(self.input.open(scope, want, Start(END, tickets))) as source:
            async for block in source:
                items = [again(item, block.tickets[place]) for place, item in enumerate(block.items)]
                yield Block(items, block.tickets, Failure in set(map(type, items)))

    @property
    def by_place(self) -> bool:
        """Whether earlier elements can be read again from the beginning."""
        return self.input.in_order and not self.input.once

    @property
    def cardinality(self) -> int:
        return 0 if self.input.cardinality == 0 else UNKNOWN_CARDINALITY

    @property
    def resume_note(self) -> str | None:
        return "unique() reads again what came before" if self.by_place else None


def again(item: Any, ticket: Ticket) -> Any:
    """Return an element that has come, or why it cannot be compared with others."""
    failure = None if type(item) is Failure else added(set(), item, ticket)
    return item if failure is None else failure


def added(keys: set[Any], item: Any, ticket: Ticket) -> Failure | None:
    """Add the key of an element to `keys`; return the failure of one that has none."""
    try:
        keys.add(key_of(item) if has_tensors(item) else one_nan(item))
    except TypeError:
        try:
            keys.add(key_of(item))
        except Exception as error:
            return noted(error, "unique()", ticket)
    except Exception as error:  # errors of its own `__hash__` or `__eq__`
        return noted(error, "unique()", ticket)
    return None


class SeenElements(Step):
    """Stores the elements that have come; a failure passes."""

    def __init__(self, node: Unique) -> None:
        self.node = node
        self.by_place = node.by_place
        self.begin: Callable[[], Position] | None = None
        self.keys: set[Any] = set()
        self.count = 0
        self.past = 0  # elements that come once more, to be known and not to be given
        self.given: list[Tickets] = []

    def resume(self, position: Position) -> Start:
        if isinstance(position, int):
            self.past = natural(position)
            return FRESH
        inner, past = position
        self.past = natural(past)
        return Start.of(inner)

    def need(self, want: int) -> int:
        return min(self.past, 1024) or want

    def feed(self, block: Block) -> Block:
        items, places = self.at_once(block) or self.one_by_one(block)
        before, past, given = self.count, self.past, len(self.given)
        self.begin = self.begin or (lambda: beginning(self.node.input, block.tickets))
        self.count += len(block)
        self.past = max(0, past - len(block))
        if not self.by_place:
            good = [place for place, item in zip(places, items, strict=True) if type(item) is not Failure]
            self.given.append(FilteredTickets(block.tickets, good))
        known = self.begin if self.by_place else (self.given, given)
        found = UniqueTickets(block.tickets, places, before, known)
        late = bisect_left(places, past)
        return Block(items, found, Failure in set(map(type, items))).slice(late, len(items))

    def at_once(self, block: Block) -> tuple[list[Any], list[int]] | None:
        """Do as `one_by_one`, without a loop; return `None`, having remembered nothing, where that cannot be done."""
        if block.failed:
            return None
        try:
            if "torch" in sys.modules and any(map(has_tensors, block.items)):
                return None
            places = self.new(block.items)
        except Exception:  # some cannot be in a set as they are, or not be read or compared
            return None
        return [block.items[place] for place in places], places

    def new(self, items: Sequence[Any]) -> list[int]:
        """Return where elements are that have not come before, and remember them; all at once, without a loop."""
        first = dict(zip(reversed(items), range(len(items) - 1, -1, -1), strict=True))
        unknown = {*first}.difference(self.keys)
        nested = any(issubclass(kind, tuple) for kind in set(map(type, unknown)))
        if any(map(ne, unknown, unknown)) or (nested and any(map(has_nan, unknown))):
            raise ValueError("NaN is not equal to itself")
        self.keys |= unknown
        return sorted([first[item] for item in unknown])

    def one_by_one(self, block: Block) -> tuple[list[Any], list[int]]:
        """Return the elements that have not come before, and failures, and where they are."""
        items: list[Any] = []
        places: list[int] = []
        for place, item in enumerate(block.items):
            new = item if type(item) is Failure else self.first(item, block.tickets, place)
            if new is not None:
                items.append(item if new is True else new)
                places.append(place)
        return items, places

    def first(self, item: Any, tickets: Tickets, place: int) -> Any:
        """Return True for an element that has not come before, `None` for one that has, or a failure."""
        known = len(self.keys)
        failure = added(self.keys, item, tickets[place])
        return failure or (True if len(self.keys) > known else None)


Known: TypeAlias = Callable[[], Position] | tuple[Sequence[Tickets], int]
"""Where the elements that have come began, if their order is fixed; else the blocks of those given, and how many."""


@final
class UniqueTickets(SelectedTickets):
    """The elements at some places of a block that comes after `before` others.

    A position is how many elements have come, and from where on, if that is no fresh start. If they may come in another
    order, it lists those that were given, and the input's.
    """

    __slots__ = ("before", "known")

    def __init__(self, base: Tickets, places: Sequence[int], before: int, known: Known) -> None:
        super().__init__(base, places)
        self.before = before
        self.known = known

    def at(self, count: int) -> Position:
        come = self.places[count - 1] + 1 if count else 0
        if callable(self.known):
            begin, number = self.known(), self.before + come
            return number if begin is None else [begin, number]
        blocks, number = self.known
        here = cast("FilteredTickets", blocks[number])
        known = [*blocks[:number], FilteredTickets(self.base, [place for place in here.places if place < come])]
        return [replaying(self.base.at(come), known), sum(map(len, known))]


def has_tensors(item: Any) -> bool:
    """Return whether there are tensors in an element, whose hash and `==` do not compare them by value."""
    if "torch" not in sys.modules or type(item) in PLAIN:
        return False
    return any_tensor(leaves_of(item))


def key_of(item: Any) -> Any:
    """Return a hashable key, equal for equal elements: for arrays, their dtype, shape and content."""
    if isinstance(item, np.ndarray):
        array = cast("npt.NDArray[Any]", item)
        dtype, content = array_content(array)
        return (np.ndarray, dtype, array.shape, content if isinstance(content, bytes) else tuple(map(key_of, content)))
    if isinstance(item, Ragged) or is_tensor(item):
        return tensor_content(item) if is_tensor(item) else (Ragged, key_of(item.values), key_of(item.row_splits))
    if isinstance(item, list):
        return (list, *map(key_of, cast("list[Any]", item)))
    level = open_level(item)
    if level is None:
        hash(item)
        return one_nan(item)
    kind: type[Any] = type(item)  # pyright: ignore[reportUnknownVariableType]
    parts = [key_of(part) for part in level.parts]
    if kind is tuple:
        return tuple(parts)
    return (kind, frozenset(zip(level.names, parts, strict=True)))
