"""The consumer's side: for how long it has read, for how long it waited, and what it was raised."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from asyncdata.runtime.spans import RECORDERS, record

__all__ = ("ConsumerTimes",)

RECALLED: Final = 20
WIDEST: Final = 500


class ConsumerTimes:
    """Seconds since the first element was asked for, until it came, and those of waiting, which are those in `with`."""

    __slots__ = ("begin", "begun", "ended", "errors", "first", "now", "waited", "waiting")

    def __init__(self) -> None:
        self.now: Callable[[], float] = time.perf_counter
        self.begin = self.begun = self.ended = 0.0
        self.first = self.waited = 0.0
        self.waiting = False
        """Whether it waits just now."""
        self.errors: deque[str] = deque(maxlen=RECALLED)
        """How the last exceptions read that it was raised."""

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
        """Take note of how an exception reads that the consumer is about to see; nothing keeps the exception."""
        try:
            words = "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
        except Exception:  # noqa: BLE001  a user's exception may not be able to say what it is
            words = type(error).__name__
        self.errors.append(words if len(words) <= WIDEST else f"{words[: WIDEST // 2]} … {words[-WIDEST // 2 :]}")

    def end(self) -> None:
        """Count no further."""
        self.ended = self.ended or self.now()

    @property
    def waits(self) -> float:
        """For how many seconds it has been waiting for what it asked for last; 0 if it does not."""
        begin = self.begin
        return max(0.0, self.now() - begin) if self.waiting else 0.0

    @property
    def seconds(self) -> float:
        """How many have passed."""
        return (self.ended or self.now()) - self.begun if self.begun else 0.0
