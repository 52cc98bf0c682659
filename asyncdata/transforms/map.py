"""map: a function of each element."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from asyncdata.elements.validation import check_choice
from asyncdata.errors import PlanError
from asyncdata.executors.autotune import Tuning
from asyncdata.executors.element_rng import Chance, Randomized, drawn_seed
from asyncdata.executors.function_call import Call
from asyncdata.executors.function_wrappers import WORKERS_ALONE, is_interrupted
from asyncdata.executors.group_work import GroupWork
from asyncdata.graph.node import (
    PHYSICAL,
    REPLACEABLE,
    Node,
    OneForOne,
    check_arguments,
    check_count,
    check_integer,
    nodes_of,
)
from asyncdata.graph.stages import Apply
from asyncdata.options import AUTOTUNE
from asyncdata.system.host_resources import usable_cores
from asyncdata.system.optional_packages import require
from asyncdata.transforms.fields import check_fields, fields_of
from asyncdata.transforms.function_node import Called, tuning_for

if TYPE_CHECKING:
    from asyncdata.executors.process.pool import PoolHandle

__all__ = ("EXECUTORS", "Map", "call_for", "check_synchronous", "declared", "workers_for")

EXECUTORS: Final = (None, AUTOTUNE, "inline", "thread", "process")

Where: TypeAlias = "tuple[int | None, PoolHandle | Executor | Tuning | None]"
"""How many workers a map gets, `None` for one element after the other in the engine's own thread, and whose."""


def workers_for(call: Call, calls: int | None, executor: Executor | str | int | None) -> Where:
    """Return where a map's function is called, for the user's arguments."""
    if not isinstance(executor, Executor) and executor not in EXECUTORS:
        raise PlanError(
            f"map(executor=) must be one of {EXECUTORS[2:]}, AUTOTUNE, None or an executor of concurrent.futures, "
            f"got {executor!r}"
        )
    if calls is not None:
        check_count("map", "num_parallel_calls", calls, 1, (AUTOTUNE,))
    if call.is_async and isinstance(executor, (str, Executor)):
        raise PlanError(f"{call.name} is a coroutine function: it is awaited, leave executor={executor!r} out")
    if is_interrupted(call.fn) and executor != "process" and not isinstance(executor, futures.ProcessPoolExecutor):
        raise PlanError(f"{call.name}: {WORKERS_ALONE}")
    if executor == "inline" and calls is not None:
        raise PlanError("map(executor='inline') runs one call at a time: leave num_parallel_calls out")
    if executor == "inline":
        call.prompt()
    if executor == "process":
        from asyncdata.executors.process.pool import pool_of
        from asyncdata.executors.process.workers import held_by

        held_by(GroupWork((call,)))
        return calls or AUTOTUNE, pool_of(usable_cores() if calls in (None, AUTOTUNE) else calls)
    if isinstance(executor, Executor):
        check_executor(executor)
        return calls or AUTOTUNE, executor
    if AUTOTUNE in (calls, executor) and calls in (None, AUTOTUNE) and executor in (None, AUTOTUNE):
        return AUTOTUNE, tuning_for(call, processes=executor == AUTOTUNE)
    return 1 if (executor == "thread" or call.waits) and calls is None else calls, None


def check_executor(executor: Executor) -> None:
    """Raise for an executor of interpreters (Python 3.14), to which neither elements nor most packages can be given."""
    interpreters: Any = getattr(futures, "InterpreterPoolExecutor", ())
    if isinstance(executor, interpreters):
        raise PlanError(
            f"map(executor=) cannot be an {type(executor).__name__}: NumPy and elements cannot be used in several "
            "interpreters; give executor='process', or a ThreadPoolExecutor or ProcessPoolExecutor of your own"
        )


def check_synchronous(value: Any, calls: Any, executor: Any) -> bool:
    """Return whether a map calls its function on one element at a time; `PlanError` if parallel calls are requested
    too."""
    if not check_choice("map", "synchronous", value):
        return False
    if calls is not None:
        raise PlanError(
            f"map(synchronous=True) makes one call at a time: leave out num_parallel_calls={calls!r} or synchronous"
        )
    if executor not in (None, "inline"):
        raise PlanError(
            f"map(synchronous=True) calls on the engine's thread: leave out executor={executor!r} or synchronous"
        )
    return True


def randomized(plan: Node, fn: Callable[..., Any], rng: bool | str, seed: int | None) -> Randomized:
    """Return a function that takes `rng=`, distinguished from others with the same seed by how many come before it."""
    chance = Chance(drawn_seed() if seed is None else seed, seed is None)
    if rng == "torch":
        require("torch", "map(rng='torch')")
    return Randomized(fn, chance, earlier(plan), rng == "torch")


def call_for(plan: Node, fn: Callable[..., Any], rng: bool | str, seed: int | None) -> Call:
    """Return how `map` calls a user's function."""
    if seed is not None and not rng:
        raise PlanError("map(seed=) is for rng=True, which hands the function a generator")
    seed = None if seed is None else check_integer("map", "seed", seed)
    call = randomized(plan, fn, rng, seed) if rng else Call("map", fn)
    call.number = maps_in(plan)
    check_arguments(call, plan, **({"rng": None} if rng else {}))
    return call


def maps_in(plan: Node) -> int:
    """Return how many maps a plan has."""
    return sum(isinstance(node, Map) for node in nodes_of(plan))


def earlier(plan: Node) -> int:
    """Return how many maps with randomness a plan has."""
    return sum(isinstance(node, Map) and node.chance is not None for node in nodes_of(plan))


@dataclass(frozen=True, eq=False)
class Map(Called, OneForOne):
    """Functions called on each element, one after another."""

    functions: tuple[Call, ...] = field(metadata=REPLACEABLE)
    vectorized: bool = field(default=False, kw_only=True, repr=False, metadata=PHYSICAL)
    """Whether the user declared that the functions also accept batches, and return batches of the results."""

    @property
    def calls(self) -> tuple[Call, ...]:
        return self.functions

    @staticmethod
    def of(
        plan: Node,
        call: Call,
        calls: int | None,
        deterministic: bool | None,
        executor: Executor | str | int | None,
        pure: bool = False,
        vectorized: bool = False,
        synchronous: bool = False,
    ) -> Map:
        """Return a map for the user's arguments."""
        if vectorized and (call.keyed or call.is_async):
            raise PlanError(f"map(vectorized=True) is for plain functions without rng=, which {call.name} is not")
        workers, where = workers_for(call, calls, executor)
        pinned = synchronous or executor == "inline"
        if pure and workers is None and not pinned and not call.is_async:
            where = tuning_for(call, processes=True)
        one = Map(plan, (call,), workers=workers, ordered=deterministic, executor=where)
        return dataclasses.replace(one, pure=pure, pinned=pinned, vectorized=vectorized)

    @property
    def chance(self) -> Chance | None:
        call = self.functions[0]
        return call.chance if isinstance(call, Randomized) else None

    def with_seed(self, seed: int) -> Map:
        calls = [call.seeded(seed) if isinstance(call, Randomized) else call for call in self.functions]
        return dataclasses.replace(self, functions=tuple(calls))

    def stage(self) -> Apply:
        return self.calling(self.functions)

    @property
    def elementwise(self) -> bool:
        return self.pure if self.workers is None else self.ordered is not False

    @property
    def signature(self) -> Any:
        return self.functions[-1].gives

    def label(self) -> str:
        first, *others = self.functions
        if not first.name.startswith("map("):  # the calls that read a source, and maps that follow it on a cluster
            return " → ".join([first.name, *(call.name for call in others)])
        names = " → ".join(call.name[4:-1] if call.name.startswith("map(") else call.name for call in self.functions)
        return f"map({names}{self.how()})"


M = TypeVar("M", bound=Called)


def declared(node: M, call: Call, keeps: Any, shrinks: bool) -> M:
    """Return a new map whose function is declared not to change fields, or to shrink elements."""
    if keeps is None and not shrinks:
        return node
    if not node.pure and node.workers is None:
        raise PlanError(
            f"map(keeps=, shrinks=) allows that a step moves, but {call.name} is called once for each element, in "
            "order: add pure=True if it may be called in any order or not at all, or num_parallel_calls"
        )
    if keeps is not None:
        call.untouched = fields_of("map", "keeps", keeps)
        check_fields("map", "keeps", call.untouched, node.input.signature)
    call.shrinks = shrinks
    return node
