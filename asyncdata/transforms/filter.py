"""filter: only the elements for which a predicate is true; and filters and maps in one pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter, truth
from types import CoroutineType
from typing import Any

from asyncdata.executors.function_call import Call, locate
from asyncdata.graph.node import REPLACEABLE, Node, check_arguments, check_called, check_parallel
from asyncdata.graph.stages import Apply
from asyncdata.options import AUTOTUNE, UNKNOWN_CARDINALITY
from asyncdata.runtime.block import Failure
from asyncdata.runtime.tickets import Ticket
from asyncdata.transforms.fields import Fields, check_fields, shown
from asyncdata.transforms.function_node import Called, tuning_for

__all__ = ("Filter", "Predicate")


class Predicate(Call):
    """A user's function whose results are true or false; another result (an array of several) is a failure.

    One that `reads` some fields of an element is given those alone, one argument each.
    """

    __slots__ = ("pick", "reads")

    is_predicate = True

    def __init__(self, fn: Callable[..., Any], kind: str = "filter", reads: Fields = ()) -> None:
        super().__init__(kind, fn, spread=len(reads) != 1)
        self.reads = reads
        self.pick: Callable[[Any], Any] | None = itemgetter(*reads) if reads else None
        if reads:
            self.name = f"{self.name[:-1]}, reads={shown(reads)})"
            self.label = self.name + locate(fn)

    def call_one(self, item: Any) -> Any:
        return super().call_one(item if self.pick is None else self.pick(item))

    def over(self, items: Any, kinds: set[type]) -> Any:
        if self.pick is not None:
            items, kinds = map(self.pick, items), {tuple}
        verdicts = iter(super().over(items, kinds))
        for first in verdicts:
            if type(first) is CoroutineType:  # it would not be awaited, and it counts as true
                first.close()
                raise self.not_awaited()
            return chain((truth(first),), map(truth, verdicts))
        return iter(())  # also where the function raised StopIteration: its caller sees that one is missing

    async def run_async(self, item: Any, ticket: Ticket) -> Any:
        verdict = await super().run_async(item, ticket)
        try:
            return verdict if type(verdict) is Failure else truth(verdict)
        except Exception as error:
            return self.failure(error, ticket)


@dataclass(frozen=True, eq=False)
class Filter(Called):
    """The elements for which a predicate is true; or the results of several predicates and maps in turn."""

    functions: tuple[Call, ...] = field(metadata=REPLACEABLE)

    @property
    def calls(self) -> tuple[Call, ...]:
        return self.functions

    @staticmethod
    def of(
        plan: Node, predicate: Predicate, calls: int | None, deterministic: bool | None, pure: bool = False
    ) -> Filter:
        """Return a filter for the user's arguments."""
        check_parallel("filter", calls)
        check_read(predicate, plan)
        workers = 1 if predicate.waits and calls is None else calls
        tuned = calls == AUTOTUNE or (pure and workers is None and not predicate.is_async)
        tuning = tuning_for(predicate, processes=pure) if tuned else None
        return Filter(plan, (predicate,), workers=workers, ordered=deterministic, executor=tuning, pure=pure)

    def stage(self) -> Apply:
        return self.calling(self.functions)

    @property
    def cardinality(self) -> int:
        return 0 if self.input.cardinality == 0 else UNKNOWN_CARDINALITY

    @property
    def signature(self) -> Any:
        return self.input.signature if all(call.is_predicate for call in self.functions) else None

    def label(self) -> str:
        first, *others = self.functions
        if not others:
            return f"{first.name[:-1]}{self.how()})"
        return f"map_and_filter({' → '.join(call.name for call in self.functions)}{self.how()})"


def check_read(predicate: Predicate, plan: Node) -> None:
    """Raise `PlanError` if a predicate cannot be called with elements of a plan, or with the fields that it reads."""
    if not predicate.reads:
        check_arguments(predicate, plan)
        return
    check_fields("filter", "reads", predicate.reads, plan.signature)
    check_called(predicate, f"{len(predicate.reads)} arguments, one for each field that it reads", predicate.reads)
