"""What a pipeline did in the last ten minutes: samples of its statistics, and the figures of the dashboard from two."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from asyncdata.statistics.statistics import Statistics

__all__ = ("LONGEST", "RECENT", "History", "Sample", "View", "between", "load_of", "pace_of", "still_drawn", "wait_of")

MOST: Final = 240
"""How many samples are retained of the last two minutes, and of the last ten."""

EACH: Final = 5
"""One sample of so many is retained for ten minutes."""

LONGEST: Final = 600.0
"""How many seconds of curves are drawn at most."""

RECENT: Final = 5.0
"""How many seconds are called `now`."""


class Sample(NamedTuple):
    """The totals of a pipeline at one time."""

    at: float
    """A time of `time.monotonic`."""
    elements: int = 0
    waited: float = 0.0
    """Seconds that the consumer has waited."""
    own: tuple[float, ...] = ()
    """Seconds of each step on the pipeline's thread."""
    worked: tuple[float, ...] = ()
    """Seconds of each step's workers, divided by how many there are."""
    held: int = 0
    """Bytes in buffers."""
    memory: int = 0
    """Bytes of memory of the process and its worker processes; 0 if unknown."""


class History:
    """Samples at equal distances, newest last: of two minutes, and fewer of ten."""

    def __init__(self) -> None:
        self.recent: deque[Sample] = deque(maxlen=MOST)
        self.long: deque[Sample] = deque(maxlen=MOST)
        self.count = 0
        self.drawn: tuple[Statistics, str] | None = None
        """What was drawn last of a pipeline that is over."""

    def add(self, now: float, stats: Statistics, used: int = 0) -> None:
        """Store a sample."""
        own = tuple([step.own_seconds for step in stats.steps])
        worked = tuple([step.worker_seconds / max(1, step.workers) for step in stats.steps])
        sample = Sample(now, stats.elements, stats.waiting_seconds, own, worked, stats.held_bytes, used)
        self.recent.append(sample)
        if self.count % EACH == 0:
            self.long.append(sample._replace(own=(), worked=()))
        self.count += 1

    @property
    def curve(self) -> list[Sample]:
        """The samples to draw: those of two minutes, or of ten once there are more."""
        return [*self.recent] if self.count <= MOST else [*self.long, self.recent[-1]]

    @property
    def pairs(self) -> list[tuple[Sample, Sample]]:
        """Samples of the curve, from the third on, with those `RECENT` seconds before them; the last pair is `now`."""
        curve, first, found = self.curve, 0, list[tuple[Sample, Sample]]()
        for one in curve[2:]:
            while curve[first].at < one.at - RECENT and curve[first + 1] is not one:
                first += 1
            found.append((curve[first], one))
        latest = self.before(RECENT)
        return found if latest is None or not found else [*found[:-1], (latest, curve[-1])]

    def before(self, seconds: float) -> Sample | None:
        """Return the sample that is about so many seconds older than the last one, at most; `None` if there is none."""
        recent = [*self.recent]
        return next((one for one in recent[:-1] if one.at >= recent[-1].at - seconds), None)


class View(NamedTuple):
    """A pipeline that is shown."""

    number: int
    stats: Statistics
    history: History
    rank: str = ""
    """Which of several processes reads it."""
    here: bool = True
    """Whether that is the process of the page."""


def still_drawn(views: Sequence[View], now: float) -> list[View]:
    """Return the pipelines that have a curve, some of which is of the last ten minutes."""
    return [view for view in views if view.history.count > 2 and view.history.recent[-1].at >= now - LONGEST]


def pace_of(view: View) -> float:
    """Return how many elements a second were delivered in the last seconds; on average, once it is over."""
    before = view.history.before(RECENT) if view.stats.running else None
    return view.stats.pace if before is None else between(before, view.history.recent[-1])


def between(before: Sample, after: Sample) -> float:
    """Return the elements a second between two samples."""
    return max(0, after.elements - before.elements) / max(1e-3, after.at - before.at)


def wait_of(before: Sample, after: Sample) -> float:
    """Return the share of the time between two samples that the consumer waited."""
    return min(1.0, max(0.0, after.waited - before.waited) / max(1e-3, after.at - before.at))


def load_of(place: int, before: Sample, after: Sample) -> float:
    """Return how busy the step at a place was between two samples, from 0 to 1."""
    if place >= min(len(before.own), len(after.own)):
        return 0.0
    most = max(after.own[place] - before.own[place], after.worked[place] - before.worked[place])
    return min(1.0, max(0.0, most) / max(1e-3, after.at - before.at))
