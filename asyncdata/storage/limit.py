"""How many requests are made at once to one endpoint, by all readers of the process together."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

__all__ = ("Limit",)

FIRST: Final = 16
"""Requests at once to begin with."""

MOST: Final = 64
"""Requests at once at most: more connections than that gain nothing, and endpoints refuse them."""

LESS: Final = 0.7
"""What is left of the limit when a window of requests was mostly refused; half is too harsh."""


class Limit:
    """A number of requests that may be under way, which grows while they succeed and falls when they are refused.

    Event loops of several threads share it.
    """

    def __init__(self, first: int = FIRST, most: int = MOST) -> None:
        self.now = float(first)
        self.most = most
        self.running = 0
        self.waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self.lock = threading.Lock()
        self.seen = 0
        self.refusals = 0

    @property
    def crowded(self) -> bool:
        """Whether all requests that may be made are under way."""
        return self.running >= int(self.now)

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
            if self.running < int(self.now):
                self.running += 1
                return None
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
            while self.waiting and self.running < int(self.now):
                self.running += 1
                admitted.append(self.waiting.popleft())
        for loop, turn in admitted:
            try:
                loop.call_soon_threadsafe(settle, turn)
            except RuntimeError:  # its loop was closed while it waited
                self.leave()

    def succeeded(self) -> None:
        """Note that a request was answered."""
        with self.lock:
            self.seen += 1
            if self.waiting and self.now < self.most:
                self.now = min(float(self.most), self.now + 1 / self.now)
            self.close_window()

    def refused(self) -> None:
        """Note that the endpoint had too many requests."""
        with self.lock:
            self.seen += 1
            self.refusals += 1
            self.close_window()

    def close_window(self) -> None:
        """Judge the last requests, as many as may be made at once."""
        if self.seen >= int(self.now):
            if self.refusals * 2 > self.seen:
                self.now = max(1.0, self.now * LESS)
            self.seen = self.refusals = 0


def settle(turn: asyncio.Future[None]) -> None:
    """Give a turn to who waits for it; one who has just given up passes it on."""
    with suppress(asyncio.InvalidStateError):
        turn.set_result(None)
