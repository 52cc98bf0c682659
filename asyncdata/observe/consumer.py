"""The consumer's side: for how long it has read, and for how long it waited."""

from __future__ import annotations

import time
from collections.abc import Callable

from asyncdata.runtime.spans import RECORDERS, record

__all__ = ("ConsumerTimes",)


class ConsumerTimes:
    """Seconds since the first element was asked for, until it came, and those of waiting, which are those in `with`."""

    __slots__ = ("begin", "begun", "ended", "first", "now", "waited")

    def __init__(self) -> None:
        self.now: Callable[[], float] = time.perf_counter
        self.begin = self.begun = self.ended = 0.0
        self.first = self.waited = 0.0

    def __enter__(self) -> None:
        self.begin = self.now()
        self.begun = self.begun or self.begin

    def __exit__(self, *_: object) -> None:
        seconds = self.now() - self.begin
        self.waited += seconds
        if RECORDERS:
            record("wait", "wait", seconds, 0)
        self.first = self.first or self.waited

    def end(self) -> None:
        """Count no further."""
        self.ended = self.ended or self.now()

    @property
    def seconds(self) -> float:
        """How many have passed."""
        return (self.ended or self.now()) - self.begun if self.begun else 0.0
