"""rate_limit: at most so many elements a second."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, ClassVar

from asyncdata.errors import PlanError
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import PHYSICAL, Node, OneForOne, StateFree, check_count
from asyncdata.graph.stages import Opener
from asyncdata.runtime.block import Blocks, Demand
from asyncdata.runtime.tickets import Start

__all__ = ("RateLimit",)


@dataclass(frozen=True)
class Metered:
    """Elements at most `rate` a second on average, and `burst` at once after a pause; waits before it asks for one."""

    rate: float
    burst: int
    counts: ClassVar[bool] = False

    @property
    def waits(self) -> bool:
        return True

    def open(self, scope: Scope, inputs: Sequence[Opener], want: Demand, start: Start) -> Blocks:
        inner = Demand()
        return self.run(scope.loop, inputs[0](scope, inner, start), inner, want)

    async def run(self, loop: asyncio.AbstractEventLoop, source: Blocks, inner: Demand, want: Demand) -> Blocks:
        """Read as many elements as the elapsed time allows.

        `due` is when the next element would come if all came evenly; up to a burst of elements may come earlier.
        """
        interval = 1 / self.rate
        due = loop.time()
        async with aclosing(source):
            while True:
                ahead = due - (self.burst - 1) * interval - loop.time()
                if ahead > 0:
                    await asyncio.sleep(ahead)
                allowed = 1 + int(max(0.0, -ahead) * self.rate + 1e-6)
                inner.items = min(want.items, self.burst, allowed)
                block = await anext(source, None)
                if block is None:
                    return
                due = max(due, loop.time()) + len(block) * interval
                yield block


@dataclass(frozen=True, eq=False)
class RateLimit(StateFree, OneForOne):
    """The input's elements, at most `per_second` of them in a second."""

    per_second: float = field(metadata=PHYSICAL)
    burst: int = field(default=1, metadata=PHYSICAL)

    @staticmethod
    def of(plan: Node, per_second: Any, burst: Any) -> RateLimit:
        """Return the node for the user's arguments."""
        if not isinstance(per_second, (int, float)) or not 0 < per_second < float("inf"):
            raise PlanError(f"rate_limit(per_second=) must be a number above 0, got {per_second!r}")
        return RateLimit(plan, per_second, check_count("rate_limit", "burst", burst, 1))

    def stage(self) -> Metered:
        return Metered(self.per_second, self.burst)

    def label(self) -> str:
        return f"rate_limit({self.per_second:g}{'' if self.burst == 1 else f', burst={self.burst}'})"
