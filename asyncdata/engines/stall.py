"""When a consumer that waits loses patience, also one that waits on the loop that runs its pipeline."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple
from weakref import ref

from asyncdata.executors.leaving import Leaving
from asyncdata.executors.scope import OwnedTask
from asyncdata.runtime.queue import is_virtual

__all__ = ("PATIENT", "LoopWatch", "Patience")

BLOCKED: Final = 1.0
"""How many seconds late a loop may run callbacks before it counts as blocked."""


def nothing() -> bool:
    """Do nothing, and report no more."""
    return True


class Patience(NamedTuple):
    """For how many seconds a consumer waits until `report` is called; again and again until that returns true."""

    seconds: float | None = None
    report: Callable[[], bool] = nothing

    def timer(self, loop: asyncio.AbstractEventLoop) -> asyncio.TimerHandle | None:
        """Schedule the report on a loop, once; the caller cancels the timer."""
        return None if self.seconds is None else loop.call_later(self.seconds, self.report)


PATIENT: Final = Patience()


class LoopWatch:
    """Has a consumer lose patience that waits on the loop that runs its pipeline: on that loop, or in a thread.

    The thread is for a blocked loop, which cannot run callbacks. It belongs to the pipeline, and ends with it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, owned: OwnedTask) -> None:
        self.loop = loop
        self.owned = owned
        self.patience = PATIENT
        self.runs: threading.Thread | None = None
        """The thread that runs the loop, once a consumer has waited there."""
        self.timer: asyncio.TimerHandle | None = None
        self.since: float | None = None
        """Since when a consumer waits, if one does and that was not reported yet."""

    def begin(self, patience: Patience) -> None:
        """Begin to wait, in the thread that runs the loop."""
        if patience.seconds is None:
            return
        self.patience, self.since = patience, time.monotonic()
        self.timer = self.loop.call_later(patience.seconds, self.report)
        if self.runs is None and not is_virtual(self.loop):
            self.owned.start(partial(watch, ref(self), self.owned.over, patience.seconds + BLOCKED), "asyncdata-watch")
        self.runs = threading.current_thread()

    def end(self) -> None:
        """Wait no longer."""
        self.since = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def report(self) -> None:
        """Report once what the consumer waits for."""
        if self.since is not None:
            self.since = None
            self.patience.report()

    @property
    def threads(self) -> list[threading.Thread]:
        """The threads of the pipeline, and the one that runs the loop, if that does not ask itself."""
        others = [] if self.runs in (None, threading.current_thread()) else [self.runs]
        return [*self.owned.threads, *others]


def watch(watched: ref[LoopWatch], over: Leaving, seconds: float) -> None:
    """Report each wait that is longer than its patience; check no sooner than that can be, until all waits are over."""
    left = seconds
    while not over.within(left):
        one, left = watched(), seconds
        if one is None:
            return
        if (since := one.since) is not None and (left := since + seconds - time.monotonic()) <= 0:
            one.report()
            left = seconds
        one = None  # not held meanwhile
