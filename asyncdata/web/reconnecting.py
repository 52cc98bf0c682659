"""When to reconnect to an endless stream, and when to give up."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Final, final

from asyncdata.redaction import redacted

__all__ = ("RETRIED_STATUSES", "Reconnecting")

RETRIED_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""The statuses of HTTP after which the same request may succeed."""

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 30.0
SHORTEST_SECONDS: Final = 0.5
"""A server may ask for shorter waits, or send an item on each connection; browsers wait about as long nevertheless."""

log = logging.getLogger("asyncdata")


@final
class Reconnecting:
    """Waits longer after each attempt, until `give_up_seconds` have passed without an item since the connection broke.

    A stream that has never sent anything is not tried again: its address may be wrong. However often items come and
    the connection breaks, there are at most `1 / SHORTEST_SECONDS` attempts in a second.
    """

    def __init__(self, what: str, give_up_seconds: float) -> None:
        self.what = what
        self.seconds = give_up_seconds
        self.first = FIRST_SECONDS
        self.attempts = 0
        self.has_sent = False
        self.broke: float | None = None
        """When it broke for the first time since the last item, by the loop's clock."""

    def heard(self) -> None:
        """Record that something came, if only a sign of life: the address is right."""
        self.has_sent = True

    def received(self) -> None:
        """Record that an item came."""
        self.has_sent, self.broke, self.attempts = True, None, 0

    async def wait(self, error: Exception) -> None:
        """Wait before the next attempt; raise `error` if there is to be none."""
        longest = min(LONGEST_SECONDS, max(SHORTEST_SECONDS, self.first) * 2 ** min(self.attempts, 16))
        wait = max(SHORTEST_SECONDS, longest * random.uniform(0.5, 1))
        now = asyncio.get_running_loop().time()
        self.broke = now if self.broke is None else self.broke
        if not self.has_sent or now + wait > self.broke + self.seconds:
            raise error
        if not self.attempts:
            log.warning("%s: the connection broke (%s); reconnecting", self.what, redacted(str(error)))
        self.attempts += 1
        await asyncio.sleep(wait)
