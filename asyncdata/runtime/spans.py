"""Spans of time in which steps worked or waited, stored while a recorder is active."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, Final, NamedTuple

__all__ = ("RECORDERS", "Recorder", "Span", "record")


class Span(NamedTuple):
    """The beginning and end of some work, in seconds of `time.perf_counter`, which all processes share."""

    step: Any
    """The node of the work, or a label."""
    kind: str
    """`"engine"`, `"worker"`, `"function"`, `"wait"`, `"device"` or `"step"`."""
    lane: int
    """The number of the thread or process, among several of one kind that run at once."""
    begin: float
    end: float
    items: int


class Recorder:
    """Stores the last `most` spans."""

    def __init__(self, most: int) -> None:
        self.spans: deque[Span] = deque(maxlen=most)


RECORDERS: Final[list[Recorder]] = []
"""The active recorders. The list is nearly always empty, and a step only checks that."""


def record(step: Any, kind: str, seconds: float, items: int, end: float = 0.0, lane: int | None = None) -> None:
    """Record work of `seconds` until `end`, by default until now, in all active recorders. Thread-safe."""
    end = end or time.perf_counter()
    span = Span(step, kind, threading.get_ident() if lane is None else lane, end - seconds, end, items)
    for recorder in [*RECORDERS]:
        recorder.spans.append(span)
