"""PaceModel: which choice AUTOTUNE should try next, or make, by what was measured. Pure: no clock, no threads.

Reasons and measurements: docs/design.md, "AUTOTUNE".
"""

from __future__ import annotations

from math import inf
from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = ("CHEAP", "Cost", "PaceModel", "Way", "Where")

Where: TypeAlias = Literal["inline", "thread", "task", "process"]
Way: TypeAlias = tuple[Where, int]
"""Where calls are made, and how many at once."""

CHEAP: Final = 30e-6
"""Seconds below which a call is not worth a thread: to hand it over and wait for the interpreter lock takes longer."""

COMPUTES: Final = 0.7
"""A function that computes for at least this part of its time is said to compute."""

FIRST: Final = 8
MOST: Final = 64
"""How many calls that wait are made at once, to begin with and at most."""

BETTER: Final = 1.05
PROMISING: Final = 1.07
"""How many times the pace of the best choice another one must have; and must be expected to have, to be tried."""

WIDER: Final = 1.2
"""How many times the pace more threads must have had for still more to be tried."""

CHEAP_GAIN: Final = 2.0
SEND: Final = 5e-6
SEND_BYTE: Final = 1e-10
"""Cheap functions are called in processes if that has so many times the pace. To send an element and its result takes
so many seconds, and so many more for each byte, as one copy does."""

CROWDED: Final = 1.15
"""How many times as long as in a process calls compute in threads that wait for one another."""

CONTENDED: Final = 2.0
HELD: Final = 0.3
"""How many times as long as alone calls take in threads that wait for the interpreter lock, and for what part of the
time calls compute at least if they do."""


class Cost(NamedTuple):
    """What a call costs: the seconds that it takes, of these those that it computes, and bytes to send for it."""

    seconds: float = inf
    cpu: float = 0.0
    nbytes: float = 0.0
    crowded: bool = False
    """Whether calls side by side in threads give up their cores, for the interpreter lock or for something else."""

    @property
    def computes(self) -> bool:
        """Whether it computes for most of its time."""
        return self.cpu >= COMPUTES * self.seconds

    @property
    def alone(self) -> float:
        """Seconds that it computes at least where no other call is in its way."""
        return self.cpu / CROWDED if self.crowded and self.computes else self.cpu

    @property
    def text(self) -> str:
        """What it is called in a reason."""
        part = "" if self.seconds < CHEAP else f", {self.cpu / self.seconds:.0%} of it computing"
        return f"a call takes {number(1e6 * self.seconds)} µs{part}"


class PaceModel(NamedTuple):
    """What is known of a function, and what follows from it.

    `paces` are the elements a second that were measured, while the reader waited. For what was not measured, the cost
    of a call and the number of cores say which pace is possible at most. The share for which a function holds the
    interpreter lock shows in the pace of threads.
    """

    cores: int
    waiting: Where
    """Where calls are made that wait: in threads or tasks."""
    processes: bool
    """Whether calls may be made in worker processes, and that could be worth it."""
    cost: Cost
    paces: dict[Way, float]
    away: float | None = None
    """Seconds of a call in a worker process, once that was measured."""

    @property
    def ways(self) -> list[Way]:
        """The choices that there are, the one with the least expense first."""
        widths = {FIRST << place for place in range((MOST // FIRST).bit_length())}
        if ("inline", 1) in self.paces or self.cost.seconds < CHEAP:
            ways: list[Way] = [("inline", 1)]
        else:
            widths |= {1, self.cores} if self.waiting == "thread" else set()
            ways = [(self.waiting, width) for width in sorted(widths)]
        return [*ways, ("process", self.cores)] if self.processes and self.cores > 1 else ways

    @property
    def best(self) -> Way:
        """The choice with the least expense of those that were about as fast as the fastest."""
        return least(self.ways, {way: self.worth(way, pace) for way, pace in self.paces.items()}) or self.ways[0]

    def worth(self, way: Way, pace: float) -> float:
        """Return the pace of a choice, less what cheap functions must gain in processes."""
        return pace / CHEAP_GAIN if way[0] == "process" and self.cost.seconds < CHEAP else pace

    @property
    def promising(self) -> Way | None:
        """The choice to try next: of those not measured, one that should be faster than the best one measured."""
        paces = {way: self.expected(way) for way in self.ways if way not in self.paces and self.is_reachable(way)}
        way = least(self.ways, paces)
        return way if way and paces[way] > PROMISING * self.paces.get(self.best, 0.0) else None

    @property
    def disappointing(self) -> list[Way]:
        """The choices that were slower than the best one and should be faster, as something else may have been the
        cause."""
        best = self.best
        return [way for way in self.paces if way != best and self.expected(way) > PROMISING * self.paces.get(best, 0.0)]

    def expected(self, way: Way) -> float:
        """Return how many elements a second a choice can have at most, by what is known of others."""
        where, workers = way
        if where == "process":
            return self.worth(way, workers / (self.away or self.sent))
        seconds = self.cost.seconds
        tried = sorted([(width, pace) for (place, width), pace in self.paces.items() if place == where])
        fewer = [pair for pair in tried if pair[0] < workers]
        more = [pace for width, pace in tried if width > workers]
        if not fewer:
            return max(more, default=inf)
        width, pace = fewer[-1]
        if len(fewer) > 1 and pace < WIDER * max(pace for _, pace in fewer[:-1]):
            return pace
        pace = max(pace, 1 / seconds) if width == 1 else pace
        return min(pace * workers / width, self.computed, self.filled if workers > self.cores else inf, *more)

    @property
    def sent(self) -> float:
        """Seconds of a call in a worker process at least: it waits for no interpreter lock there."""
        cost = self.cost
        call = cost.alone if cost.alone < cost.cpu or self.threads_contend else cost.seconds
        return call + SEND + SEND_BYTE * cost.nbytes

    @property
    def threads_contend(self) -> bool:
        """Whether calls in threads take longer than alone, and compute a good deal, though cores are free: then they
        wait for the interpreter lock, which they would not in processes."""
        tried = [(width, pace) for (where, width), pace in self.paces.items() if where == "thread"]
        width, pace = max(tried, default=(0, 0.0))
        busy = pace * self.cost.cpu
        return width > CONTENDED * pace * self.cost.seconds and HELD < busy < COMPUTES * self.cores

    @property
    def computed(self) -> float:
        """How many elements a second all cores compute at most, in threads."""
        return self.cores / self.cost.cpu if self.cost.cpu else inf

    def most(self, where: Where) -> float:
        """Return how many elements a second all cores compute at most there."""
        return self.cores / self.cost.alone if where == "process" and self.cost.cpu else self.computed

    @property
    def filled(self) -> float:
        """How many elements a second there are at most if threads compute while others wait that have a core each."""
        pace = self.paces.get(("thread", self.cores), inf)
        return pace * self.cost.seconds / self.cost.cpu if self.cost.cpu else inf

    def is_reachable(self, way: Way) -> bool:
        """Return whether a choice may be tried now: a thread for each core first, if calls compute, and then at most
        twice as many calls at once as before."""
        where, workers = way
        widest = max((width for place, width in self.paces if place == where), default=0)
        computes = self.cost.computes and (where, self.cores) not in self.paces
        return where == "process" or workers <= max(self.cores, 0 if computes else max(FIRST, 2 * widest))

    @property
    def measured(self) -> str:
        """The paces that were measured, in words."""
        paces = [f"{number(self.paces[way])} in {named(way)}" for way in self.ways if way in self.paces]
        return "elements/s: " + ", ".join(paces)


def least(ways: list[Way], paces: dict[Way, float]) -> Way | None:
    """Return the first of the ways that are about as fast as the fastest."""
    fastest = max(paces.values(), default=0.0)
    return next((way for way in ways if way in paces and BETTER * paces[way] >= fastest), None)


def number(value: float) -> str:
    """Return a number with about three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def named(way: Way) -> str:
    """Return the name of a choice in a reason."""
    where, workers = way
    if where == "inline":
        return "the engine's thread"
    return f"{workers} {where}" + ("s" * (workers > 1) if where != "process" else "es" * (workers > 1))
