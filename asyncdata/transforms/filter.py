"""filter: only the elements for which a predicate is true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from operator import truth
from types import CoroutineType
from typing import Any

from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.plan import Unary
from asyncdata.runtime.block import Failure
from asyncdata.runtime.executors import Call
from asyncdata.runtime.stage import Apply
from asyncdata.runtime.tickets import Ticket

__all__ = ("Filter", "Predicate")


class Predicate(Call):
    """A user's function whose results are true or false; what is neither (an array of several) is its failure."""

    __slots__ = ()

    def __init__(self, fn: Callable[..., Any], kind: str = "filter") -> None:
        super().__init__(kind, fn)

    def over(self, items: Any, kinds: set[type]) -> Any:
        verdicts = iter(super().over(items, kinds))
        for first in verdicts:
            if type(first) is CoroutineType:  # which nobody would await, and which counts as true
                first.close()
                raise TypeError(f"{self.name} returned a coroutine: define the function with `async def`")
            return chain((truth(first),), map(truth, verdicts))
        return iter(())  # also where the function raised StopIteration: its caller sees that one is missing

    async def run_async(self, item: Any, ticket: Ticket) -> Any:
        verdict = await super().run_async(item, ticket)
        try:
            return verdict if type(verdict) is Failure else truth(verdict)
        except Exception as error:
            return self.failure(error, ticket)


@dataclass(frozen=True, eq=False)
class Filter(Unary):
    """The elements for which `predicate` is true, in order."""

    predicate: Predicate

    @property
    def transparent(self) -> bool:
        return True

    def stage(self) -> Apply:
        return Apply((self.predicate,), keep=True)

    @property
    def cardinality(self) -> int:
        return 0 if self.input.cardinality == 0 else UNKNOWN_CARDINALITY

    def label(self) -> str:
        return self.predicate.name
