"""Tentative: functions that may be called anywhere, in place until threads are seen to be quicker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.executors import Pace
from asyncdata.runtime.scope import Scope
from asyncdata.runtime.stage import INLINE_GROUP, Apply, Opener, breathe, split
from asyncdata.runtime.tickets import Start
from asyncdata.runtime.work import Work

__all__ = ("Tentative",)

CHEAP: Final = 5e-5
"""What a call takes, in seconds, that costs more in another thread than it saves."""

BETWEEN: Final = 4e-3
TRIALS: Final = 3


class Trial:
    """Finds out whether threads would be quicker: calls must be long, and wait or let each other run."""

    def __init__(self, scope: Scope, work: Work) -> None:
        self.scope = scope
        self.work = work
        self.left = TRIALS
        self.count = 0
        self.seconds = 0.0

    async def passed(self, group: Block, seconds: float, busy: float) -> bool:
        """Take note of how long a group took, and how long of that this thread was busy; now and then try threads."""
        self.count += len(group)
        self.seconds += seconds
        if self.seconds < BETWEEN or not self.left:
            return False
        cost = self.seconds / self.count
        self.count, self.seconds = 0, 0.0
        if cost < CHEAP:
            return False
        self.left -= 1
        return busy < seconds / 2 or await self.at_once(group) < 1.5 * seconds

    async def at_once(self, group: Block) -> float:
        """Return how long two threads take that do all of a group's work each; results are dropped."""
        begin = time.perf_counter()
        await asyncio.gather(*[self.scope.in_thread(lambda: self.work.run(group)) for _ in range(2)])
        return time.perf_counter() - begin


@dataclass(frozen=True)
class Tentative:
    """1→1: what `apply` does in threads, but in place as long as that is not seen to be slower."""

    apply: Apply

    def open(self, scope: Scope, inputs: Sequence[Opener], want: Demand, start: Start) -> Blocks:
        inner = Demand()
        return self.run(scope, inputs[0](scope, inner, start), inner, want)

    async def run(self, scope: Scope, source: Blocks, inner: Demand, want: Demand) -> Blocks:
        """Call the functions in place, then give what is left to threads."""
        rest: list[Block] = []
        ours = True
        try:
            async with aclosing(self.inline(scope, source, inner, want, rest)) as begun:
                async for block in begun:
                    yield block
            if rest:
                ours = False
                behind = resumed(rest, source, inner)
                async with aclosing(self.apply.concurrent(scope, behind, inner, want, self.apply.workers or 1)) as done:
                    async for block in done:
                        yield block
        finally:
            if ours or rest:  # else whoever reads it now closes it
                await source.aclose()

    async def inline(self, scope: Scope, source: Blocks, inner: Demand, want: Demand, rest: list[Block]) -> Blocks:
        """Call the functions here; once threads are better, put what was read into `rest` and end."""
        work, pace = self.apply.work.at(scope.epoch), Pace(INLINE_GROUP)
        trial = Trial(scope, work)
        while True:
            inner.items = want.items
            block = await anext(source, None)
            if block is None:
                return
            start = 0
            while start < len(block):
                group = block.part(start, start + min(pace.group, want.items))
                begin, busy = time.perf_counter(), time.thread_time()
                result = work.run(group)
                seconds, busy = time.perf_counter() - begin, time.thread_time() - busy
                pace.measured(len(group), seconds)
                start += len(group)
                if result.items:
                    yield result
                else:
                    await breathe()
                if await trial.passed(group, seconds, busy):
                    rest.append(block.part(start, len(block)))
                    return


async def resumed(rest: list[Block], source: Blocks, want: Demand) -> Blocks:
    """Yield the block that is left, then those that follow; close the source."""
    block = rest.pop()
    async with aclosing(source):
        for part in split(block, want):
            yield part
        async for part in source:
            yield part
