"""FunctionTimes: how long each of several functions took that are called in one pass."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from asyncdata.runtime.spans import RECORDERS, record

__all__ = ("FunctionKey", "FunctionTimes")

LOOK: Final = 4e-6
SHARE: Final = 100
MOST_UNSEEN: Final = 255
"""To measure a pass costs less than `LOOK` seconds, and one part in `SHARE` of the time is spent on it; at least one
of `MOST_UNSEEN` passes is measured."""


class FunctionKey(NamedTuple):
    """A function among those that are called one after another: its place and its name."""

    number: int
    name: str


class FunctionTimes:
    """The seconds of each function, from some of the passes.

    Several threads may add to it without a lock: it yields the shares of a step's time, which are about right.
    """

    __slots__ = ("keys", "seconds", "skip", "unseen")

    def __init__(self, names: tuple[str, ...], seconds: dict[FunctionKey, float] | None = None) -> None:
        self.keys = [FunctionKey(place, name) for place, name in enumerate(names)]
        self.seconds: dict[FunctionKey, float] = {} if seconds is None else seconds
        self.unseen = self.skip = 0

    def is_due(self, count: int) -> bool:
        """Return whether the next pass, over so many elements, is measured."""
        self.unseen += count
        if self.skip > 0 and not RECORDERS:
            self.skip -= 1
            return False
        return True

    def add(self, count: int, taken: list[float]) -> None:
        """Add a measured pass over so many elements, which stands for those before it that were not measured too."""
        weight = max(self.unseen, count) / count
        self.unseen, total = 0, sum(taken)
        self.skip = min(MOST_UNSEEN, int(LOOK * SHARE / max(total, 1e-9)))
        for key, seconds in zip(self.keys, taken):
            self.seconds[key] = self.seconds.get(key, 0.0) + seconds * weight
            total -= seconds
            if RECORDERS:
                record(key.name, "function", seconds, count, time.perf_counter() - total)
