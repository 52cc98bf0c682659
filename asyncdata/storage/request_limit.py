"""Limit: how many requests go to one endpoint, such as a bucket, in parallel; all readers of the process share it.

Reasons and measurements: docs/design.md, "Objects in stores".
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

__all__ = ("Limit",)

FIRST: Final = 16
"""The first limit."""

MOST: Final = 64
"""The largest limit: more connections gain nothing, and endpoints refuse them."""

MORE: Final = 1.5
"""The factor to the next limit that is tried, while the current limit is reached."""

GAIN: Final = 1.1
"""The factor by which the throughput must grow to confirm a larger limit."""

PATIENCE: Final = 30
"""Windows of requests before a larger limit that did not help is tried again."""

LESS: Final = 0.7
"""The factor to the next limit after a window of mostly refused requests; a half would be too little."""

REQUEST: Final = 1 << 16
"""Bytes that each request counts in addition to its own, so that small requests count too."""


class Limit:
    """The number of requests that may run at once: it grows while throughput grows, and falls after refused requests.

    It is evaluated in windows of as many requests as the limit. Event loops of several threads may share it.
    """

    def __init__(self, first: int = FIRST, most: int = MOST, clock: Callable[[], float] = time.monotonic) -> None:
        self.now = first
        self.most = most
        self.clock = clock
        self.running = 0
        self.waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self.lock = threading.Lock()
        self.before = 0
        """The limit before the one that is being tried; 0 if none is tried."""
        self.rate = 0.0
        """The throughput with that limit."""
        self.rest = 0
        self.begin()

    def begin(self) -> None:
        self.since = self.clock()
        self.bytes = self.seen = self.refusals = 0
        self.full = self.running >= self.now
        """Whether the limit was reached in this window, so that a larger one could help."""

    @property
    def crowded(self) -> bool:
        """Whether the limit is reached."""
        return self.running >= self.now

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[None]:
        """Wait for a free slot, and hold it within the block."""
        if (turn := self.enter()) is not None:
            try:
                await turn
            except BaseException:
                self.give_up(turn)
                raise
        try:
            yield
        finally:
            self.leave()

    def enter(self) -> asyncio.Future[None] | None:
        """Take a slot and return `None`, or return a future that is done when a slot is given."""
        with self.lock:
            if self.running < self.now:
                self.running += 1
                self.full = self.full or self.running >= self.now
                return None
            self.full = True
            loop = asyncio.get_running_loop()
            turn: asyncio.Future[None] = loop.create_future()
            self.waiting.append((loop, turn))
            return turn

    def give_up(self, turn: asyncio.Future[None]) -> None:
        """Stop waiting; pass on a slot that has just been given."""
        with self.lock:
            for pair in self.waiting:
                if pair[1] is turn:
                    self.waiting.remove(pair)
                    return
        self.leave()

    def leave(self) -> None:
        """Free a slot, and give free slots to those that wait."""
        with self.lock:
            self.running -= 1
            admitted: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
            while self.waiting and self.running < self.now:
                self.running += 1
                admitted.append(self.waiting.popleft())
        for loop, turn in admitted:
            try:
                loop.call_soon_threadsafe(settle, turn)
            except RuntimeError:  # its loop was closed while it waited
                self.leave()

    def succeeded(self, size: int) -> None:
        """Record that a request was answered with `size` bytes."""
        with self.lock:
            self.bytes += size + REQUEST
            self.note()

    def refused(self) -> None:
        """Record that the endpoint refused a request."""
        with self.lock:
            self.refusals += 1
            self.note()

    def note(self) -> None:
        """Count a request, and evaluate the window when it is full."""
        self.seen += 1
        if self.seen >= self.now:
            self.judge()
            self.begin()

    def judge(self) -> None:
        """Adjust the limit."""
        if self.refusals * 2 > self.seen:
            self.now, self.before, self.rest = max(1, int(self.now * LESS)), 0, PATIENCE
            return
        rate = self.bytes / max(self.clock() - self.since, 1e-9)
        if self.before and self.full:
            better = rate > self.rate * GAIN
            self.now, self.before, self.rest = (self.now, 0, 0) if better else (self.before, 0, PATIENCE)
            if not better:
                return
        if self.rest:
            self.rest -= 1
        elif self.full and self.now < self.most and not self.before:
            self.before, self.rate = self.now, rate
            self.now = min(self.most, int(self.now * MORE) + 1)


def settle(turn: asyncio.Future[None]) -> None:
    """Give a slot to the task that waits for it; a task that has just given up passes it on."""
    with suppress(asyncio.InvalidStateError):
        turn.set_result(None)
