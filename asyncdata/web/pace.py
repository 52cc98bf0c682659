"""Pace: how often the reader of a channel is woken, when items come one by one and in quick succession."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, final

from asyncdata.runtime.queue import LoopSignal, is_virtual

__all__ = ("ChannelReader",)

HALF_PAUSE: Final = 5e-4
"""Half of the seconds for which items are collected."""

QUICK: Final = 5e-4
STREAK: Final = 8
"""So many takes in a row, each so soon after the last one, say that items come in quick succession."""

AGAIN: Final = 64
"""Takes after which a pause is tried again that was not worth it."""


@final
class ChannelReader:
    """One reader of a channel, on its loop: it is woken by each send, or collects items for a millisecond.

    To wake a thread costs as much as to receive a request by HTTP. So where sends come quicker than that, it waits
    until there are as many items as it wants, or a millisecond has passed, or a sender finds no space. If nothing comes
    in the second half of that time, the senders probably wait for what becomes of their items, and it stops doing so.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.signal = LoopSignal(loop, threadsafe=True)
        self.enough = 1
        """Items for which it is woken."""
        self.pauses = False
        self.sends = self.sends_halfway = 0
        self.last = 0.0
        self.streak = -(1 << 62) if is_virtual(loop) else 0  # such a loop would jump over the pause

    def sent(self, items: int) -> None:
        """Take note of a send, and wake it if so many items are enough. Called in any thread."""
        self.sends += 1
        if items >= self.enough:
            self.signal.notify()

    def hurry(self) -> None:
        """Wake it for one item. Called in any thread."""
        self.enough = 1
        self.signal.notify()

    async def until(self, ready: Callable[[int], bool], want: int) -> None:
        """Wait until there are items, of which it wants so many at most."""
        if not self.pauses:
            await self.signal.until(lambda: ready(1))
            return
        self.enough, self.sends_halfway = want, -1
        timers = [self.loop.call_later(HALF_PAUSE, self.halfway), self.loop.call_later(2 * HALF_PAUSE, self.end)]
        try:
            await self.signal.until(lambda: ready(self.enough))
        finally:
            self.enough = 1
            for timer in timers:
                timer.cancel()

    def halfway(self) -> None:
        self.sends_halfway = self.sends

    def end(self) -> None:
        self.pauses = self.sends != self.sends_halfway
        self.streak = 0 if self.pauses else -AGAIN
        self.hurry()

    def took(self, everything: bool) -> None:
        """Take note of items that were taken, and of whether more would have been."""
        now = time.perf_counter()
        if not self.pauses:
            quick = everything and now - self.last < QUICK
            self.streak = self.streak + 1 if quick or self.streak < 0 else 0
            self.pauses = self.streak >= STREAK
        self.last = now
