"""Random numbers as a source: each a hash of the seed and its place, so that any of them can be had."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from asyncdata.options import INFINITE_CARDINALITY
from asyncdata.plan import check_integer
from asyncdata.runtime.block import Blocks, Demand
from asyncdata.runtime.random import Chance
from asyncdata.runtime.scope import Scope
from asyncdata.runtime.tickets import Position, Ticket, plain
from asyncdata.sources.memory import FOREVER, Rows
from asyncdata.structure import TensorSpec

__all__ = ("Random",)

GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
SECOND: Final = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, eq=False)
class Random(Rows):
    """Integers from 0 to before 2³², for ever; the same in each epoch unless `anew`."""

    seed: int = field(repr=False)
    drawn: bool = field(repr=False)
    anew: bool = False
    epoch: tuple[Any, ...] = field(default=(), repr=False)

    @staticmethod
    def of(seed: int | None, anew: bool) -> Random:
        """Return the source for a seed, or for one that is drawn now."""
        chosen = secrets.randbits(63) if seed is None else check_integer("random", "seed", seed)
        return Random(chosen, seed is None, anew)

    @property
    def chance(self) -> Chance:
        return Chance(self.seed, self.drawn)

    @property
    def size(self) -> int:
        return FOREVER

    @property
    def cardinality(self) -> int:
        return INFINITE_CARDINALITY

    @property
    def signature(self) -> TensorSpec:
        return TensorSpec((), "int64")

    def label(self) -> str:
        return f"random({'rerandomize_each_iteration=True' if self.anew else ''})"

    def rows(self, start: int, stop: int) -> list[int]:
        return self.hashed(np.arange(start, stop, dtype=np.uint64))

    def gather(self, places: Sequence[int]) -> list[int]:
        return self.hashed(np.array(places, np.uint64))

    def hashed(self, places: npt.NDArray[np.uint64]) -> list[int]:
        """Return the numbers at some places: SplitMix64's, of which the upper half is taken."""
        words = repr((self.seed, self.epoch)).encode()
        key = np.frombuffer(blake2b(words, digest_size=8).digest(), np.uint64)
        mixed = key + (places + np.uint64(1)) * GOLDEN
        mixed = (mixed ^ (mixed >> np.uint64(30))) * FIRST
        mixed = (mixed ^ (mixed >> np.uint64(27))) * SECOND
        return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(32)).tolist()

    def at(self, scope: Scope) -> Random:
        """Return the source as it is in an epoch."""
        return dataclasses.replace(self, epoch=plain(scope.epoch)) if self.anew and not self.epoch else self

    def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        here = self.at(scope)
        return super().blocks(scope, want, position) if here is self else here.blocks(scope, want, position)

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        here = self.at(scope)
        return super().fetch(scope, want, tickets) if here is self else here.fetch(scope, want, tickets)
