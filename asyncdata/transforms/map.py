"""map: a function of each element."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from asyncdata.errors import PlanError
from asyncdata.options import AUTOTUNE
from asyncdata.plan import Node, Unary, check_count, parallel_label
from asyncdata.runtime.block import Blocks, Demand
from asyncdata.runtime.executors import Call, default_workers
from asyncdata.runtime.scope import Scope
from asyncdata.runtime.stage import Apply
from asyncdata.runtime.tickets import END, Start, Ticket

__all__ = ("EXECUTORS", "Map", "workers_for")

EXECUTORS: Final = (None, AUTOTUNE, "inline", "thread")


def workers_for(call: Call, num_parallel_calls: int | None, executor: str | int | None) -> int | None:
    """Return how many workers a map gets: `None` for one element after the other, in the engine's own thread."""
    if executor not in EXECUTORS:
        raise PlanError(f"map(executor=) must be one of {EXECUTORS[2:]}, AUTOTUNE or None, got {executor!r}")
    if num_parallel_calls is not None:
        check_count("map", "num_parallel_calls", num_parallel_calls, 1, (AUTOTUNE,))
    if call.is_async and isinstance(executor, str):
        raise PlanError(f"{call.name} is a coroutine function: it is awaited, leave executor={executor!r} out")
    if executor == "inline" and num_parallel_calls is not None:
        raise PlanError("map(executor='inline') runs one call at a time: leave num_parallel_calls out")
    return 1 if executor == "thread" and num_parallel_calls is None else num_parallel_calls


@dataclass(frozen=True, eq=False)
class Map(Unary):
    """Functions called on each element, one after the other; `workers` is `None` for a sequential map."""

    functions: tuple[Call, ...]
    workers: int | None = None
    ordered: bool | None = None

    @staticmethod
    def of(
        plan: Node, fn: Callable[..., Any], calls: int | None, deterministic: bool | None, executor: str | int | None
    ) -> Map:
        """Return a map for what the user asked for."""
        call = Call("map", fn)
        return Map(plan, (call,), workers_for(call, calls, executor), deterministic)

    @property
    def identity(self) -> str:
        return dataclasses.replace(self, workers=None, ordered=None).label()

    @property
    def transparent(self) -> bool:
        return self.workers is None or self.ordered is not False

    def run(self, scope: Scope, want: Demand, start: Start) -> Blocks:
        if self.transparent or start.position is None:
            return super().run(scope, want, start)
        return super().run(scope, want, Start.of(start.position[0]))

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        return dataclasses.replace(self, ordered=True).run(scope, want, Start(END, tickets))

    def stage(self) -> Apply:
        workers = default_workers() if self.workers == AUTOTUNE else self.workers
        return Apply(self.functions, workers=workers, ordered=self.ordered is not False)

    @property
    def elementwise(self) -> bool:
        return self.workers is not None and self.ordered is not False

    @property
    def in_order(self) -> bool:
        return (self.workers is None or self.ordered is not False) and self.input.in_order

    @property
    def signature(self) -> None:
        return None

    def label(self) -> str:
        names = " → ".join(call.name[4:-1] for call in self.functions)
        unordered = ", deterministic=False" if self.ordered is False else ""
        return f"map({names}{parallel_label(self.workers)}{unordered})"
