"""How many requests are made at once to one endpoint, by all readers of the process together."""

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
"""Requests at once to begin with."""

MOST: Final = 64
"""Requests at once at most: more connections than that gain nothing, and endpoints refuse them."""

MORE: Final = 1.5
"""How much larger the limit is that is tried next, while all requests that may be made are made."""

GAIN: Final = 1.1
"""How much faster bytes must come for a larger limit to be kept."""

PATIENCE: Final = 30
"""Windows of requests after which a larger limit is tried that was of no use before."""

LESS: Final = 0.7
"""What is left of the limit when a window of requests was mostly refused; half is too harsh."""

REQUEST: Final = 1 << 16
"""How many bytes a request counts as besides its own: many small ones are also worth something."""


class Limit:
    """A number of requests that may be under way: it grows as long as bytes come faster, and falls when it is refused.

    It is judged by windows of as many requests as may be made at once. Event loops of several threads share it.
    """

    def __init__(self, first: int = FIRST, most: int = MOST, clock: Callable[[], float] = time.monotonic) -> None:
        self.now = first
        self.most = most
        self.clock = clock
        self.running = 0
        self.waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self.lock = threading.Lock()
        self.before = 0
        """The limit that a larger one is tried instead of, 0 if none is tried."""
        self.rate = 0.0
        """How fast bytes came with that."""
        self.rest = 0
        self.begin()

    def begin(self) -> None:
        """Begin a window."""
        self.since = self.clock()
        self.bytes = self.seen = self.refusals = 0
        self.full = self.running >= self.now
        """Whether all requests that may be made were made at some time, so that a larger limit may be of use."""

    @property
    def crowded(self) -> bool:
        """Whether all requests that may be made are under way."""
        return self.running >= self.now

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[None]:
        """Wait until one more request may be made, and make it within the block."""
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
        """Count one more request, or return what says when it is its turn."""
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
        """Wait no longer; pass on a turn that has just been given."""
        with self.lock:
            for pair in self.waiting:
                if pair[1] is turn:
                    self.waiting.remove(pair)
                    return
        self.leave()

    def leave(self) -> None:
        """Let the next ones in."""
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
        """Note that a request was answered with so many bytes."""
        with self.lock:
            self.bytes += size + REQUEST
            self.note()

    def refused(self) -> None:
        """Note that the endpoint had too many requests."""
        with self.lock:
            self.refusals += 1
            self.note()

    def note(self) -> None:
        """Count a request, and judge the window when it is full."""
        self.seen += 1
        if self.seen >= self.now:
            self.judge()
            self.begin()

    def judge(self) -> None:
        """Change the limit, if that seems better."""
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
    """Give a turn to who waits for it; one who has just given up passes it on."""
    with suppress(asyncio.InvalidStateError):
        turn.set_result(None)
