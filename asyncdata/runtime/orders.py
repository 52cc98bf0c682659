"""Orders: shuffled orders that can be computed again, so that a log stores places instead of tickets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncdata.runtime.columns import Columns

__all__ = ("MOST_PLACES", "Order", "Ordered", "Places")

MOST_PLACES: Final = 1 << 62
"""The most places of an order that has no end of its own."""

Places: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Order(ABC):
    """Which ticket stands at which place: a pure function of what is stored here."""

    key: int
    """The random choices of the epoch."""
    size: int
    """How many places there are at most."""
    turns: tuple[int, ...] = field(default=(), kw_only=True)
    """The turns of `repeat` that it is in, the outermost first."""

    def within(self, turn: int) -> Self:
        """Return the same order in a turn of `repeat`."""
        return replace(self, turns=(turn, *self.turns))

    @abstractmethod
    def described(self) -> dict[str, Any]:
        """Return it as JSON, without its turns."""

    @abstractmethod
    def tickets(self, places: Places) -> Columns:
        """Return the tickets at these places, of which there is at least one, without the turns."""

    def columns(self, places: Places) -> Columns:
        """Return the tickets at these places; `ValueError` for a place that there is not."""
        if len(places) and (places.min() < 0 or places.max() >= self.size):
            raise ValueError(f"place {places.max()} of {self.size}")
        found = self.tickets(places)
        for turn in reversed(self.turns):
            found = {"0": np.full(len(places), turn, np.int64), "1": found}
        return found


class Ordered(NamedTuple):
    """Elements whose tickets stand at some places of an order."""

    order: Order
    places: Places
