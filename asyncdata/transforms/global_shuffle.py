"""shuffle of everything: a keyed permutation of the places of an input whose elements can be had in any order."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from asyncdata.errors import PlanError, ResumeError
from asyncdata.executors.element_rng import Chance, drawn_seed, epoch_key
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import (
    ELSEWHERE,
    EVERYTHING,
    Node,
    OneForOne,
    Unary,
    check_count,
    check_integer,
    finite,
    nodes_of,
    shuffles,
)
from asyncdata.graph.stages import Opener, Rerun
from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.runtime.block import Blocks, Demand
from asyncdata.runtime.columns import Columns
from asyncdata.runtime.orders import Order, Ordered, Places
from asyncdata.runtime.position_codec import pack_columns
from asyncdata.runtime.tickets import END, Position, Start, Tickets, TicketWrapper, encode, is_named
from asyncdata.sources.parsed_files import FileCatalog, ParsedFile
from asyncdata.sources.random_access import IndexedSource
from asyncdata.transforms.flat_map import FlatMap
from asyncdata.transforms.shuffle import Shuffle
from asyncdata.transforms.take import Take

__all__ = ("Permutation", "Permute", "permuted", "shuffled")

ROUNDS: Final = 6
AT_ONCE: Final = 4096
"""How many places are permuted at once: enough to spread NumPy's overhead and that of opening the input."""

U = np.uint64


def permuted(start: int, stop: int, size: int, key: int) -> npt.NDArray[np.int64]:
    """Return where places `start` to `stop` of `range(size)` go in a permutation that `key` chooses.

    A Feistel network over the next power of two; a value outside is mapped again until it is inside (Black and Rogaway
    2002). Nothing is stored: any place of 10**9 takes as long as the first.
    """
    return permuted_places(np.arange(start, stop), size, key)


def permuted_places(places: Places, size: int, key: int) -> Places:
    """Return where these places of `range(size)` go in that permutation; `ValueError` for others, as a damaged state or
    log may have, which would be mapped for ever.
    """
    if len(places) and not 0 <= int(places.min()) <= int(places.max()) < size:
        raise ValueError(f"places {places.min()} to {places.max()} of {size} elements")
    bits = max(2, (size - 1).bit_length())
    low = bits // 2
    found = places.astype(U)
    outside = np.arange(len(found))
    while len(outside):
        found[outside] = feistel(found[outside], bits - low, low, key)
        outside = outside[found[outside] >= U(size)]
    return found.astype(np.int64)


def feistel(places: npt.NDArray[np.uint64], high: int, low: int, key: int) -> npt.NDArray[np.uint64]:
    """Return a permutation of all numbers of `high + low` bits, at these places."""
    left, right = places >> U(low), places & U((1 << low) - 1)
    bits, other = high, low
    for step in range(ROUNDS if high + low > 8 else 4 * ROUNDS):  # few bits are mixed less well by each round
        left, right = right, left ^ (mixed(right, key + step * 0x9E3779B97F4A7C15) >> U(64 - bits))
        bits, other = other, bits
    return left << U(low) | right


def mixed(values: npt.NDArray[np.uint64], key: int) -> npt.NDArray[np.uint64]:
    """Return a hash of each value, whose upper bits are the good ones."""
    with np.errstate(over="ignore"):
        z = (values + U(key & 0xFFFFFFFFFFFFFFFF)) * U(0xBF58476D1CE4E5B9)
        return (z ^ (z >> U(32))) * U(0x94D049BB133111EB)


@dataclass(frozen=True)
class Permutation(Order):
    """The order of a shuffle of everything, of elements that are numbered, or numbered in files."""

    begins: tuple[int, ...] = ()
    """The number of each file's first element, and at the end that of elements; nothing if their tickets are the
    numbers."""

    def described(self) -> dict[str, Any]:
        counts = np.diff(self.begins)
        files = {"files": pack_columns(counts, len(counts))} if len(counts) else {}
        return {"shuffle": [self.key, self.size], **files}

    def tickets(self, places: Places) -> Columns:
        numbers = permuted_places(places, self.size, self.key)
        if not self.begins:
            return numbers
        begins = np.asarray(self.begins)
        files = np.searchsorted(begins, numbers, side="right") - 1
        return {"0": files, "1": numbers - begins[files]}

    @staticmethod
    def of(key: int, source: Node) -> Permutation | None:
        """Return the order of the elements of a source; `None` if their tickets are no function of their numbers."""
        size = source.cardinality
        while isinstance(source, (OneForOne, Take)):
            source = source.input
        if isinstance(source, FlatMap) and isinstance(source.catalog, FileCatalog):
            return Permutation(key, size, tuple(source.catalog.begins.tolist()))
        return Permutation(key, size) if isinstance(source, (IndexedSource, ParsedFile)) else None


@final
class Shuffled(TicketWrapper):
    """The tickets of the elements in the shuffled order from place `start` on."""

    __slots__ = ("of", "order", "start")

    def __init__(self, base: Tickets, start: int, of: list[Any], order: Order | None) -> None:
        super().__init__(base)
        self.start = start
        self.of = of
        self.order = order

    def ordered(self, start: int, stop: int) -> Ordered | None:
        return self.order and Ordered(self.order, np.arange(self.start + start, self.start + stop))

    def at(self, count: int) -> Position:
        return [self.start + count, *self.of]

    def run_from(self, ordinal: int) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class Permute(Unary):
    """All elements in random order, without a buffer; in another order each epoch if `reshuffle`."""

    seed: int = field(metadata=ELSEWHERE)
    reshuffle: bool = True
    drawn: bool = field(default=False, metadata=ELSEWHERE)

    shuffles = True

    @property
    def holds(self) -> int:
        return EVERYTHING

    @property
    def chance(self) -> Chance:
        return Chance(self.seed, self.drawn)

    @staticmethod
    def of(plan: Node, seed: int, reshuffle: bool | None, *, drawn: bool) -> Permute:
        """Return a shuffle of everything; `PlanError` if the elements of `plan` cannot be had in any order."""
        if not plan.random_access or not finite(plan.cardinality):
            raise PlanError(
                "shuffle() without a buffer_size needs a finite dataset with random access to its elements, which "
                f"{plan.label()} does not have; give a buffer_size, shuffle before that step, or open files "
                f"with index=True{shuffles(plan)}"
            )
        return Permute(plan, seed, reshuffle is not False, drawn)

    def seek(self, count: int) -> Position:
        return [count, *self.known()]

    def known(self) -> list[Any]:
        """Return what must be the same where a run continues: the number of elements, and the first ticket of each file
        that may be written again with others."""
        first = [node.address([0])[0] for node in nodes_of(self.input) if node.sealed]
        return [self.input.cardinality, *map(encode, filter(is_named, first))]

    def stage(self) -> Rerun:
        return Rerun(self.blocks, waits=False)

    def label(self) -> str:
        return f"shuffle({'' if self.reshuffle else 'reshuffle_each_iteration=False'})"

    async def blocks(self, scope: Scope, opener: Opener, want: Demand, position: Position) -> Blocks:
        """Fetch the elements in the order of the permutation."""
        key = epoch_key(self.seed, scope.epoch if self.reshuffle else ())
        known = self.known()
        place, was, size = self.parse_position(position or [0, *known], lambda at: (at[0], [at[1], *at[2:]], known[0]))
        if was[0] != size:
            raise ResumeError(f"{self.label()} had {was[0]} elements when the state was saved, and has {size} now")
        if was != known:
            raise ResumeError(
                f"{self.label()}: a cache file before it was written again after the state was saved, maybe with other "
                "elements, or in another order; restore the file, or start without the state"
            )
        order = Permutation.of(key, self.input)
        while place < size:
            places: list[int] = permuted(place, min(place + AT_ONCE, size), size, key).tolist()
            async with aclosing(opener(scope, want, Start(END, self.input.address(places)))) as source:
                async for block in source:
                    yield block.ticketed(Shuffled(block.tickets, place, known, order))
                    place += len(block)


def shuffled(plan: Node, size: int | None, seed: int | None, reshuffle: bool | None) -> Node:
    """Return the node for a shuffle through a buffer, or of everything."""
    chosen = drawn_seed() if seed is None else check_integer("shuffle", "seed", seed)
    if size is None:
        return Permute.of(plan, chosen, reshuffle, drawn=seed is None)
    size = check_count("shuffle", "buffer_size", size, 1, (UNKNOWN_CARDINALITY,))
    return Shuffle.of(plan, size, chosen, reshuffle, drawn=seed is None)
