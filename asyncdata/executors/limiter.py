"""A limit of how many tasks do something at once."""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ("Limiter",)


class Limiter:
    """Lets `count` tasks in at once, in the order in which they came. `count` may change meanwhile.

    anyio's CapacityLimiter lets in more than it should up to version 4.14.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.inside = 0
        self.waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Wait until one more may enter."""
        if self.inside < self.count:
            self.inside += 1
            return
        self.waiting.append(turn := asyncio.get_running_loop().create_future())
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it got its turn just as it was cancelled
                self.leave()
            raise

    def leave(self) -> None:
        """Let others in, after one has left."""
        self.inside -= 1
        self.admit()

    def resize(self, count: int) -> None:
        """Let so many in at once from now on."""
        self.count = count
        self.admit()

    def admit(self) -> None:
        """Let in those that waited, while there is room."""
        while self.waiting and self.inside < self.count:
            turn = self.waiting.popleft()
            if not turn.done():  # else its task was cancelled
                self.inside += 1
                turn.set_result(None)
