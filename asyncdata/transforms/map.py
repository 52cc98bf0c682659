"""map: a function of each element."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from asyncdata.errors import PlanError
from asyncdata.options import AUTOTUNE
from asyncdata.plan import Node, OneForOne, check_count, check_integer
from asyncdata.runtime.executors import Call
from asyncdata.runtime.random import Chance, Randomized
from asyncdata.runtime.stage import Apply
from asyncdata.transforms.called import Called

__all__ = ("EXECUTORS", "Map", "call_for", "workers_for")

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


def randomized(plan: Node, fn: Callable[..., Any], seed: int | None) -> Randomized:
    """Return a function that takes `rng=`, told apart from others with the same seed by how many come before it."""
    chance = Chance(secrets.randbits(63) if seed is None else seed, seed is None)
    return Randomized(fn, chance, earlier(plan))


def call_for(plan: Node, fn: Callable[..., Any], rng: bool, seed: int | None) -> Call:
    """Return how `map` calls a user's function."""
    if rng:
        return randomized(plan, fn, None if seed is None else check_integer("map", "seed", seed))
    if seed is not None:
        raise PlanError("map(seed=) is for rng=True, which hands the function a generator")
    return Call("map", fn)


def earlier(plan: Node) -> int:
    """Return how many maps with randomness a plan has."""
    own = isinstance(plan, Map) and plan.chance is not None
    return own + sum(map(earlier, plan.inputs))


@dataclass(frozen=True, eq=False)
class Map(Called, OneForOne):
    """Functions called on each element, one after the other."""

    functions: tuple[Call, ...]

    @staticmethod
    def of(plan: Node, call: Call, calls: int | None, deterministic: bool | None, executor: str | int | None) -> Map:
        """Return a map for what the user asked for."""
        return Map(plan, (call,), workers=workers_for(call, calls, executor), ordered=deterministic)

    @property
    def chance(self) -> Chance | None:
        call = self.functions[0]
        return call.chance if isinstance(call, Randomized) else None

    def with_seed(self, seed: int) -> Map:
        calls = [call.seeded(seed) if isinstance(call, Randomized) else call for call in self.functions]
        return dataclasses.replace(self, functions=tuple(calls))

    def stage(self) -> Apply:
        return Apply(self.functions, workers=self.lanes, ordered=self.ordered is not False)

    @property
    def elementwise(self) -> bool:
        return self.workers is not None and self.ordered is not False

    @property
    def signature(self) -> None:
        return None

    def label(self) -> str:
        if not self.functions[0].name.startswith("map("):
            return self.functions[0].name
        names = " → ".join(call.name[4:-1] if call.name.startswith("map(") else call.name for call in self.functions)
        return f"map({names}{self.how()})"
