"""A stream that resumes at its own offset, and tasks that end out of turn, for tests of what keeps or reads again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Final

__all__ = ("COUNT", "OffsetStream", "out_of_turn")

COUNT: Final = 24

DRAWN: Final = random.Random(3)


class OffsetStream:
    """Numbers, from `begin` on where nothing else is told: what lies before is no longer there for who begins later."""

    begin = 0

    def __init__(self, count: int = COUNT) -> None:
        self.next, self.count = self.begin, count

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.next >= self.count:
            raise StopIteration
        self.next += 1
        return self.next - 1

    def state_dict(self) -> int:
        return self.next

    def load_state_dict(self, state: int) -> None:
        self.next = state


async def out_of_turn(number: int) -> int:
    """Return a number after some others have run."""
    for _ in range(DRAWN.randrange(4)):
        await asyncio.sleep(0)
    return number
