"""The consumer's side: how long it has read, how long it waited, and which errors it got."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from asyncdata.redaction import error_text
from asyncdata.runtime.spans import RECORDERS, record

__all__ = ("ConsumerTimes",)

RECALLED: Final = 20


class ConsumerTimes:
    """The consumer's seconds: since its first request, until the first element, and of waiting (within `with`)."""

    __slots__ = ("begin", "begun", "ended", "errors", "first", "now", "waited", "waiting")

    def __init__(self) -> None:
        self.now: Callable[[], float] = time.perf_counter
        self.begin = self.begun = self.ended = 0.0
        self.first = self.waited = 0.0
        self.waiting = False
        """Whether it waits now."""
        self.errors: deque[str] = deque(maxlen=RECALLED)
        """The texts of the last exceptions that it got."""

    def __enter__(self) -> None:
        self.begin = self.now()
        self.begun = self.begun or self.begin
        self.waiting = True

    def __exit__(self, *_: object) -> None:
        self.waiting = False
        seconds = self.now() - self.begin
        self.waited += seconds
        if RECORDERS:
            record("wait", "wait", seconds, 0)
        self.first = self.first or self.waited

    def raises(self, error: BaseException) -> None:
        """Store the text of an exception that the consumer is about to get, not the exception itself."""
        self.errors.append(error_text(error))

    def end(self) -> None:
        """Stop counting."""
        self.ended = self.ended or self.now()

    @property
    def waits(self) -> float:
        """For how many seconds it has been waiting for its last request; 0 if it does not wait."""
        begin = self.begin
        return max(0.0, self.now() - begin) if self.waiting else 0.0

    @property
    def seconds(self) -> float:
        """Seconds since its first request, until the end or now."""
        return (self.ended or self.now()) - self.begun if self.begun else 0.0
