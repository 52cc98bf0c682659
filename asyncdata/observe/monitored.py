"""What looks on at an iterator from elsewhere keeps of it: what it told last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from asyncdata.observe.statistics import Statistics

__all__ = ("LastTold", "Monitored")

GOES_ON: Final = frozenset({"not begun", "running"})


class Monitored(Protocol):
    """An iterator, or what reads one: tells what its pipeline does."""

    def monitor(self) -> Callable[[], Statistics]:
        """Return a function that tells it, and does not keep the pipeline alive."""
        ...


class LastTold:
    """What a pipeline told last: it is asked as long as it goes on, so that nothing is kept of one that is over."""

    def __init__(self, monitor: Callable[[], Statistics]) -> None:
        self.monitor: Callable[[], Statistics] | None = monitor
        self.stats = monitor()

    def look(self) -> Statistics:
        """Return what it tells now."""
        if self.monitor is not None:
            self.stats = self.monitor()
            if self.stats.state not in GOES_ON:
                self.monitor = None
        return self.stats
