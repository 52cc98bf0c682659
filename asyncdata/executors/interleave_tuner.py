"""InterleaveTuner: how many of an interleave's open inputs are read at once, found out while it runs.

Reasons and measurements: docs/design.md, "AUTOTUNE".
"""

from __future__ import annotations

import time
from typing import Final

from asyncdata.executors.autotune import LATEST, PERIOD, WATCH, Choice
from asyncdata.executors.autotune_model import COMPUTES
from asyncdata.executors.limiter import Limiter
from asyncdata.runtime.queue import BlockQueue

__all__ = ("InterleaveTuner", "ReadLimiter", "ReadPermit")

CHANGED: Final = 4.0
"""How many times as slow or as fast reading must become before choices are tried again."""

BETTER: Final = 1.05
"""How many times as fast one at a time must be to stay: all at once tolerates a slow source better."""


class InterleaveTuner:
    """What is known of an interleave's inputs; stored for the next epoch.

    All are read at once to begin with. While they do so they either wait, for storage or a server, and that is that; or
    this process computes, and one at a time may be faster, as each finds its data in the cache and its thread the
    interpreter's lock. That is tried for a moment; numbers between one and all are never better than both.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.buffer = 2
        """How many elements of an input that ended were read ahead at most."""
        self.patience = WATCH
        self.rate = 0.0
        self.settled = self.waits = False
        self.try_workers(most, "trying all at once")

    def try_workers(self, workers: int, why: str, settled: bool = False) -> None:
        """Choose how many inputs are read at once."""
        self.choice = Choice("task", workers, why)
        self.settled = settled
        self.since = 0.0
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """Begin to count; with 0 when the next block has come."""
        self.begun = now
        self.since = self.since or now
        self.busy = time.process_time()
        self.count = 0

    def read(self, count: int) -> None:
        """Record how many elements were read in one turn."""
        now = time.perf_counter()
        if not self.begun:
            self.begin(now)
            return
        self.count += count
        passed = now - self.begun
        if passed >= (WATCH if self.settled else PERIOD):
            self.judge(self.count / passed, (time.process_time() - self.busy) / passed, now)

    def judge(self, rate: float, busy: float, now: float) -> None:
        """Decide by how many elements came in a second, and how many cores this process used."""
        waits = busy < COMPUTES
        if self.settled:
            self.watch(rate, waits, now)
        elif self.choice.workers == self.most:
            self.rate, self.waits = rate, waits
            if waits:
                self.try_workers(self.most, "they wait", settled=True)
            else:
                self.try_workers(1, "they compute: trying one at a time")
        else:
            gain = rate / self.rate if self.rate else 1.0
            why = f"they compute: {gain:.2f} times as fast one at a time"
            self.rate = max(rate, self.rate)
            self.try_workers(1 if gain >= BETTER else self.most, why, settled=True)

    def watch(self, rate: float, waits: bool, now: float) -> None:
        """Try again when inputs begin to wait or to compute, or are much slower or faster, each time later."""
        changed = waits is not self.waits or not self.rate / CHANGED <= rate <= self.rate * CHANGED
        patience = min(self.patience, LATEST) if self.choice.workers == 1 else self.patience
        if changed and now - self.since >= patience:
            self.patience *= 2
            self.try_workers(self.most, "trying all at once")
        else:
            self.begin(now)


class ReadLimiter:
    """Lets the chosen number of readers read at once."""

    def __init__(self, tuner: InterleaveTuner) -> None:
        self.tuner = tuner
        self.limit = Limiter(tuner.choice.workers)
        tuner.begin(0.0)

    async def enter(self) -> None:
        """Wait until one more may read."""
        self.limit.resize(self.tuner.choice.workers)
        await self.limit.enter()

    def leave(self, count: int) -> None:
        """Let others read, after this one has read so many elements."""
        self.tuner.read(count)
        self.limit.count = self.tuner.choice.workers
        self.limit.leave()


class ReadPermit:
    """The turns of one reader, which writes what it reads into a queue."""

    def __init__(self, gate: ReadLimiter, queue: BlockQueue) -> None:
        self.gate = gate
        self.queue = queue
        self.written = 0

    async def __aenter__(self) -> None:
        await self.gate.enter()

    async def __aexit__(self, *_: object) -> None:
        written, self.written = self.written, self.queue.written
        self.gate.leave(self.written - written)
