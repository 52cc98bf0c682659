"""Dealing: which rank gets which elements of a group, so that in each step all ranks get about the same cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

__all__ = ("Dealing",)


class Dealing(NamedTuple):
    """How elements are divided between ranks: `batch_size` to each in a step, `steps` steps at a time."""

    ranks: int
    batch_size: int
    steps: int

    @property
    def size(self) -> int:
        """How many elements are dealt together."""
        return self.ranks * self.batch_size * self.steps

    def shares(self, costs: Sequence[float], drop_remainder: bool = False) -> list[list[int]]:
        """Return the places of each rank's elements of a group, step by step, of elements with these costs.

        Steps are in the order of their first elements, and so are ranks in a step, and elements in a batch. In an
        incomplete group the last elements, too few for a step, form a short step, in which some ranks may have one
        element more than others; or elements are dropped so that all have equally many.
        """
        full = len(costs) // (self.ranks * self.batch_size) * self.ranks
        batches = filled(costs, range(full * self.batch_size), [self.batch_size] * full)
        weighed = sorted([(sum(costs[place] for place in batch), batch) for batch in batches])
        alike = [
            sorted([batch for _, batch in weighed[start : start + self.ranks]]) for start in range(0, full, self.ranks)
        ]
        count, more = divmod(len(costs) - full * self.batch_size, self.ranks)
        last = range(full * self.batch_size, len(costs) - (more if drop_remainder else 0))
        sizes = [count + (rank < more and not drop_remainder) for rank in range(self.ranks)]
        steps = [*sorted(alike), filled(costs, last, sizes)]
        return [[place for step in steps for place in step[rank]] for rank in range(self.ranks)]


def filled(costs: Sequence[float], places: Iterable[int], sizes: Sequence[int]) -> list[list[int]]:
    """Return batches of the given sizes: the costliest element first, each into the cheapest batch so far."""
    batches: list[list[int]] = [[] for _ in sizes]
    cheapest = [(0.0, number) for number, size in enumerate(sizes) if size]
    heapify(cheapest)
    for place in sorted(places, key=lambda place: -costs[place]):
        total, number = heappop(cheapest)
        batches[number].append(place)
        if len(batches[number]) < sizes[number]:
            heappush(cheapest, (total + costs[place], number))
    return [sorted(batch) for batch in batches]
