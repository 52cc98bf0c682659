"""When to reconnect to an endless stream, and when to give up."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Final, final

__all__ = ("Reconnecting",)

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 30.0

log = logging.getLogger("asyncdata")


@final
class Reconnecting:
    """Waits longer after each attempt, until `give_up_seconds` have passed since the last item.

    A stream that has never sent anything is not tried again: its address may be wrong.
    """

    def __init__(self, what: str, give_up_seconds: float) -> None:
        self.what = what
        self.seconds = give_up_seconds
        self.first = FIRST_SECONDS
        self.attempts = 0
        self.came: float | None = None
        """The time of the last item, by the loop's clock."""

    def received(self) -> None:
        """Record that something came."""
        self.came, self.attempts = asyncio.get_running_loop().time(), 0

    async def wait(self, error: Exception) -> None:
        """Wait before the next attempt; raise `error` if there is to be none."""
        wait = min(LONGEST_SECONDS, self.first * 2**self.attempts) * random.uniform(0.5, 1)
        if self.came is None or asyncio.get_running_loop().time() + wait > self.came + self.seconds:
            raise error
        if not self.attempts:
            log.warning("%s: the connection broke (%s); reconnecting", self.what, error)
        self.attempts += 1
        await asyncio.sleep(wait)
