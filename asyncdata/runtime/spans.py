"""Spans of time that steps worked or waited, kept while somebody records them."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, Final, NamedTuple

__all__ = ("RECORDERS", "Recorder", "Span", "record")


class Span(NamedTuple):
    """From when to when something was done: in seconds of `time.perf_counter`, which all processes share."""

    step: Any
    """The node that it was done for, or what to call it."""
    kind: str
    """`"engine"`, `"worker"`, `"wait"`, `"device"` or `"step"`."""
    lane: int
    """Which thread or process, of several of a kind that run at once."""
    begin: float
    end: float
    items: int


class Recorder:
    """The last spans, so many at most."""

    def __init__(self, most: int) -> None:
        self.spans: deque[Span] = deque(maxlen=most)


RECORDERS: Final[list[Recorder]] = []
"""Those that record now: empty nearly always, which is all that a step asks."""


def record(step: Any, kind: str, seconds: float, items: int, end: float = 0.0, lane: int | None = None) -> None:
    """Tell all that record of what took so many seconds, until just now unless an `end` is given; from any thread."""
    end = end or time.perf_counter()
    span = Span(step, kind, threading.get_ident() if lane is None else lane, end - seconds, end, items)
    for recorder in [*RECORDERS]:
        recorder.spans.append(span)
