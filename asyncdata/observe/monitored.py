"""The latest statistics of an iterator, for observers in other threads: the dashboard, metrics, progress bars."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from asyncdata.errors import PlanError
from asyncdata.statistics.statistics import Statistics

__all__ = ("LatestStatistics", "Monitored", "monitor_of")

UNFINISHED: Final = frozenset({"not begun", "running"})


class Monitored(Protocol):
    """An iterator, or an object that reads one, whose pipeline can be observed."""

    def monitor(self) -> Callable[[], Statistics]:
        """Return a function that returns the statistics, and does not keep the pipeline alive."""
        ...


def monitor_of(method: str, monitored: Any) -> Callable[[], Statistics]:
    """Return the monitor of an iterator that was given to a method."""
    monitor: Callable[[], Callable[[], Statistics]] | None = getattr(monitored, "monitor", None)
    if monitor is None:
        kind = type(monitored).__name__
        raise PlanError(f"{method}() needs an iterator, such as iter(dataset) or dataset.loader(), got a {kind}")
    return monitor()


class LatestStatistics:
    """The latest statistics of a pipeline. After its end they stay, and the pipeline is released."""

    def __init__(self, monitor: Callable[[], Statistics]) -> None:
        self.monitor: Callable[[], Statistics] | None = monitor
        self.stats = monitor()

    def look(self) -> Statistics:
        if self.monitor is not None:
            self.stats = self.monitor()
            if self.stats.state not in UNFINISHED:
                self.monitor = None
        return self.stats
