"""MixtureReader: the elements of several inputs in a chosen order, as many of each read at once as are needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncdata.errors import annotate
from asyncdata.executors.function_call import INLINE_GROUP, ChunkSizer
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.tickets import Tickets
from asyncdata.transforms.mixture_turns import CostTurns

__all__ = ("Choices", "DrawnBlock", "DrawnPiece", "MixtureReader")

Choices = npt.NDArray[np.intp]
"""Numbers of inputs, in the order in which each gives an element."""

NOTHING_HERE: Final[Iterator[Any]] = iter(())


class DrawnPiece(NamedTuple):
    """Elements of one input that were there: their tickets, and how many of them had been drawn before."""

    tickets: Tickets
    start: int


class DrawnBlock(NamedTuple):
    """The drawn elements, the pieces of each input they came from, and the input that had ended, if that stopped the
    draw."""

    items: list[Any]
    failed: bool
    pieces: dict[int, list[DrawnPiece]]
    ended: int | None


class MixtureReader:
    """Several inputs, each opened when it is first drawn from, and their elements that were read and not drawn."""

    def __init__(
        self,
        open_input: Callable[[int, Demand], Blocks],
        begins: Sequence[Tickets],
        stack: AsyncExitStack,
        names: Sequence[str] = (),
    ) -> None:
        self.open_input = open_input
        self.stack = stack
        self.names = names
        """The names of the inputs, if they have some: errors get them."""
        self.tickets = list(begins)
        self.left = np.zeros(len(begins), np.intp)
        self.iterators = [NOTHING_HERE] * len(begins)
        self.sources: dict[int, Blocks] = {}
        self.slow: set[int] = set()
        self.price: Callable[[Block], tuple[Block, list[float]]] | None = None
        """The costs of the elements of a block, in which those without a cost have failed."""
        self.costs: dict[int, Iterator[float]] = {}
        self.failed = False
        self.demand = Demand()
        self.pace = ChunkSizer(INLINE_GROUP)

    def draw_count(self, want: Demand) -> int:
        """Return how many elements to draw at once for a demand."""
        return min(want.items, self.pace.group)

    async def draw(self, chosen: Choices) -> DrawnBlock:
        """Draw an element of each input in `chosen`; fewer if an input has ended, or was slow the last time."""
        begin = time.perf_counter()
        needed = np.bincount(chosen, minlength=len(self.left))
        pieces = self.held(needed)
        needed -= self.left
        order: list[int] = chosen.tolist()
        places, here, out, ended = iter(order), self.iterators.__getitem__, list[Any](), None
        while True:
            out.extend(map(next, map(here, places)))  # stops at an input without ready elements: its StopIteration
            if len(out) == len(order):
                break
            index = order[len(out)]
            if out and index in self.slow:
                break
            block = await self.pull(index, int(needed[index]))
            if block is None:
                ended = index
                break
            needed[index] -= len(block)
            pieces.setdefault(index, []).append(DrawnPiece(block.tickets, 0))
            out.append(next(here(index)))
        self.let_go(chosen[: len(out)], pieces)
        if out:
            self.pace.measured(len(out), time.perf_counter() - begin)
        return DrawnBlock(out, self.failed and Failure in set(map(type, out)), pieces, ended)

    async def draw_in_turn(self, turns: CostTurns, most: int, want: Demand) -> tuple[Choices, DrawnBlock]:
        """Draw at most so many elements, each of the input whose turn it is; fewer as `draw` does."""
        begin = time.perf_counter()
        out, chosen, pieces, ended = list[Any](), list[int](), dict[int, list[DrawnPiece]](), None
        while len(out) < most:
            index = turns.heap[0][2]
            if not self.left[index]:
                if out and index in self.slow:
                    break
                block = await self.pull(index, turns.expected(index, want.items - len(out)))
                if block is None:
                    ended = index
                    break
                pieces.setdefault(index, []).append(DrawnPiece(block.tickets, 0))
            elif index not in pieces:
                pieces[index] = [DrawnPiece(*self.position_of(index))]
            out.append(next(self.iterators[index]))
            turns.took(next(self.costs[index]))
            chosen.append(index)
            self.left[index] -= 1
        drawn = np.array(chosen, np.intp)
        self.release(pieces)
        if out:
            self.pace.measured(len(out), time.perf_counter() - begin)
        return drawn, DrawnBlock(out, self.failed and Failure in set(map(type, out)), pieces, ended)

    def held(self, needed: npt.NDArray[np.intp]) -> dict[int, list[DrawnPiece]]:
        """Return the piece of each input that is needed and has something here."""
        if not self.left.any():
            return {}
        here = np.flatnonzero((self.left > 0) & (needed > 0)).tolist()
        return {index: [DrawnPiece(*self.position_of(index))] for index in here}

    def position_of(self, index: int) -> tuple[Tickets, int]:
        """Return the position of an input: after how many elements of which tickets."""
        tickets = self.tickets[index]
        return tickets, len(tickets) - int(self.left[index])

    def turn(self, index: int) -> int | None:
        """Return which repetition the latest element of an input is of, as its ticket says; `None` if a run that
        resumed has not drawn from it yet. From any thread."""
        tickets = self.tickets[index]
        if count := len(tickets):
            latest: Any = tickets[max(0, count - int(self.left[index]) - 1)]
            return latest[0]
        return 0 if tickets.at(0) is None else None

    def places(self) -> list[tuple[Tickets, int]]:
        """Return the position of every input."""
        return [(tickets, len(tickets) - left) for tickets, left in zip(self.tickets, self.left.tolist(), strict=True)]

    async def pull(self, index: int, count: int) -> Block | None:
        """Read at most `count` elements of an input that has none ready; return `None` at its end."""
        source = self.sources.get(index)
        if source is None:
            opened = aclosing(self.open_input(index, self.demand))
            source = self.sources[index] = await self.stack.enter_async_context(opened)
        self.demand.items = count
        begin = time.perf_counter()
        try:
            block = await anext(source, None)
        except Exception as error:
            self.name(error, index)
            raise
        if time.perf_counter() - begin > INLINE_GROUP:
            self.slow.add(index)
        else:
            self.slow.discard(index)
        if block is not None:
            if self.price is not None:
                block, costs = self.price(block)
                self.costs[index] = iter(costs)
            self.put(index, block)
        return block

    def put(self, index: int, block: Block) -> None:
        """Read a block of an input that has none ready."""
        self.tickets[index] = block.tickets
        self.iterators[index] = iter(block.items)
        self.left[index] += len(block)
        self.failed |= block.failed
        if block.failed and self.names:
            for failure in block.items:
                if type(failure) is Failure:
                    self.name(failure.error, index)

    def name(self, error: BaseException, index: int) -> None:
        """Note on an error which input it is of."""
        if self.names:
            annotate(error, f"in the dataset {self.names[index]!r} of sample_from_datasets")

    def let_go(self, drawn: Choices, pieces: dict[int, list[DrawnPiece]]) -> None:
        """Record the draws, and release blocks that were drawn to their end."""
        self.left -= np.bincount(drawn, minlength=len(self.left))
        self.release(pieces)

    def release(self, pieces: dict[int, list[DrawnPiece]]) -> None:
        """Release the blocks of inputs that were drawn to their end."""
        for index in pieces:
            if not self.left[index]:
                self.iterators[index] = NOTHING_HERE
