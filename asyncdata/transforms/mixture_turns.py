"""CostTurns: which dataset of a mixture is next, so that the costs of what each has given are as their weights.

Each dataset has a clock, which what it gives moves on by its cost in proportion to its weight: the next element is of
the dataset whose clock is the furthest behind. So no dataset is ever further from its share than by one element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heapreplace
from math import isfinite
from typing import Any, Final, NamedTuple

from asyncdata.executors.function_call import Call, noted
from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.tickets import Position, natural
from asyncdata.transforms.balance import number_of
from asyncdata.transforms.mixture_weights import Weights, WeightsByStep

__all__ = ("CostTurns", "TurnsPlace", "priced")

LEAST: Final = 2.0**-10
"""The part of the mean cost by which an element that costs nothing, or has failed, moves its dataset's clock: else a
dataset of such elements would keep all others waiting."""


MOST: Final = 4096
"""At most about half as many elements are read ahead, of all datasets together."""


class TurnsPlace(NamedTuple):
    """What a state knows: the cost of what each dataset has given, the clocks, that of the element given last, the
    weights by which they ran, and how many elements have cost something."""

    cost: Sequence[float]
    clock: Sequence[float]
    now: float
    by: Weights
    paid: int

    @staticmethod
    def of(position: Any, count: int) -> TurnsPlace:
        """Return what a position says of so many datasets, of which the last may be new."""
        if position is None:
            return TurnsPlace([0.0] * count, [0.0] * count, 0.0, (), 0)
        parts = [list(map(float, position[name])) for name in ("cost", "clock", "by")]
        if (
            len({*map(len, parts)}) != 1
            or len(parts[0]) > count
            or not all(isfinite(x) for part in parts for x in part)
        ):
            raise ValueError(f"it does not fit {count} datasets")
        cost, clock, by = [part + [0.0] * (count - len(part)) for part in parts]
        return TurnsPlace(cost, clock, float(position["now"]), tuple(by), natural(position["paid"]))


class CostTurns:
    """The turns of a run."""

    def __init__(
        self, weights: WeightsByStep, ranks: Sequence[int], number: int, ended: Sequence[int], place: TurnsPlace
    ) -> None:
        self.weights = weights
        self.ranks = ranks
        """Who is first if two clocks are the same."""
        self.number = number
        self.ended = list(ended)
        self.cost, self.clock = list(place.cost), list(place.clock)
        self.now, self.by, self.paid = place.now, place.by, place.paid
        self.rates: list[float] = []
        self.end = -1
        """The step from which the weights may be others."""
        self.heap: list[tuple[float, int, int]] = []
        self.log: list[tuple[int, float, float]] = []
        self.begun = self.book()

    def begin(self) -> int:
        """Begin a block; return for how many elements the weights stay the same, 0 at the end of all."""
        if self.number >= self.end:
            self.weigh()
        self.log, self.begun = [], self.book()
        return self.end - self.number if self.heap else 0

    def book(self) -> dict[str, Any]:
        """Return what a state knows."""
        return {
            "number": self.number,
            "ended": list(self.ended),
            "cost": self.cost.copy(),
            "clock": self.clock.copy(),
            "now": self.now,
            "by": list(self.by),
            "paid": self.paid,
        }

    def weigh(self) -> None:
        """Take up the weights of this step. By how much a dataset is ahead of the others stays the same, in cost."""
        weights, self.end = self.weights.at(self.number)
        left = self.weights.left(weights, self.number, self.ended)
        total = sum(weights)
        if weights != self.by:
            before = sum(self.by)
            for index, weight in enumerate(weights):
                ahead = max(0.0, self.clock[index] - self.now) * self.by[index] / before if before else 0.0
                self.clock[index] = self.now + (ahead * total / weight if weight else 0.0)
            self.by = weights
        self.rates = [total / weight if weight else 0.0 for weight in weights]
        there = () if left is None else left.nonzero()[0].tolist()
        self.heap = [(self.clock[index], self.ranks[index], index) for index in there]
        heapify(self.heap)

    def expected(self, index: int, most: int) -> int:
        """Return how many of the next elements are likely to be of a dataset: half as many as its weight says, as more
        would be read for nothing if they are large."""
        return max(1, int(min(most, MOST) / self.rates[index] / 2))

    def took(self, cost: float) -> None:
        """Record that the dataset whose turn it was has given an element of this cost."""
        self.now, _, index = self.heap[0]
        self.cost[index] += cost
        self.number += 1
        self.paid += cost > 0
        cost = cost or LEAST * (sum(self.cost) / self.paid if self.paid else 1.0)
        self.clock[index] = clock = self.now + cost * self.rates[index]
        heapreplace(self.heap, (clock, self.ranks[index], index))
        self.log.append((index, self.cost[index], clock))

    def positions(self) -> Callable[[int], dict[str, Position]]:
        """Return a function that gives the position after any number of the elements of this block."""
        begun, log = self.begun, self.log

        def place(done: int) -> dict[str, Position]:
            cost, clock, now, paid = begun["cost"].copy(), begun["clock"].copy(), begun["now"], begun["paid"]
            for index, total, later in log[:done]:
                now, paid = clock[index], paid + (total > cost[index])
                cost[index], clock[index] = total, later
            here = {"number": begun["number"] + done, "now": now, "paid": paid}
            return {
                **begun,
                **here,
                "ended": begun["ended"].copy(),
                "by": begun["by"].copy(),
                "cost": cost,
                "clock": clock,
            }

        return place

    def drop(self, number: int) -> None:
        """Choose a dataset that has ended no more."""
        self.ended = [*self.ended, number]
        self.end = -1


def priced(call: Call, block: Block) -> tuple[Block, list[float]]:
    """Return a block, with failures in the places of elements whose cost cannot be told, and the cost of each."""
    items, costs, failed = list[Any](), list[float](), block.failed
    for place, (item, value) in enumerate(zip(block.items, call.run(block).items, strict=True)):
        cost = value if type(value) is Failure else checked(call, value, block, place)
        broken = type(cost) is Failure
        failed |= broken
        items.append(cost if broken else item)
        costs.append(0.0 if broken else cost)
    return Block(items, block.tickets, failed), costs


def checked(call: Call, value: Any, block: Block, place: int) -> float | Failure:
    """Return a cost as a number, or why it is none."""
    try:
        return number_of(value)
    except Exception as error:  # also errors of its own `__float__`
        return noted(error, call.label, block.tickets[place])
