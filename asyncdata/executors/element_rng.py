"""Randomness that belongs to an element: the same whatever runs it, in which order, or how often."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from copy import copy
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncdata.executors.function_call import ENDLESS, Call, Deadline, ElementIndex
from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.tickets import Ticket, Tickets, is_named, plain
from asyncdata.system.optional_packages import require

__all__ = ("Chance", "DerivedSeeds", "Randomized", "drawn_seed", "epoch_key", "mixed", "scrambled")

DERIVED: Final = 1 << 63
"""Set in drawn seeds that are derived from other seeds."""


class Chance(NamedTuple):
    """A seed, and whether it was drawn because the user gave none."""

    seed: int
    drawn: bool

    @property
    def is_repeatable(self) -> bool:
        """Whether the same program has the same seed when it runs again."""
        return not self.drawn or self.seed >= DERIVED


def drawn_seed() -> int:
    """Return a seed for a step to which the user gave none."""
    deriving = DERIVING.get()
    return int.from_bytes(os.urandom(8)) >> 1 if deriving is None else deriving.next()


class DerivedSeeds:
    """In its block, drawn seeds are derived from `seeds`: so a pipeline that resumes makes the same datasets again."""

    __slots__ = ("_count", "_seeds", "_token")

    def __init__(self, seeds: tuple[int, ...]) -> None:
        self._seeds = seeds
        self._count = 0

    def __enter__(self) -> None:
        self._token = DERIVING.set(self)

    def __exit__(self, *_: object) -> None:
        with suppress(ValueError):  # a coroutine that is closed from elsewhere has another context
            DERIVING.reset(self._token)

    def next(self) -> int:
        self._count += 1
        return epoch_key(self._count, self._seeds) | DERIVED


DERIVING: Final[ContextVar[DerivedSeeds | None]] = ContextVar("DERIVING", default=None)
"""Where drawn seeds come from, in a user's function that makes datasets."""


def epoch_key(seed: int, epoch: tuple[Any, ...]) -> int:
    """Return the key of one epoch's order: 64 bits of a hash of seed and epoch, the same on every machine."""
    return int.from_bytes(blake2b(repr((seed, plain(epoch))).encode(), digest_size=8).digest(), "little")


def mixed(start: int, stop: int, key: int) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each of `start` to `stop`."""
    return scrambled(np.arange(start, stop, dtype=np.uint64), key)


def scrambled(numbers: npt.NDArray[np.uint64], key: int) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each number (the finalizer of splitmix64, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        z = numbers * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def leaves(path: Any) -> Iterator[Any]:
    """Yield the numbers of a path of epochs and tickets, however they are nested; without names of what is stored."""
    if isinstance(path, ElementIndex):
        path = path.ticket
    if is_named(path):
        yield from leaves(path[1])
    elif isinstance(path, (tuple, list, Tickets)):
        for part in path:  # pyright: ignore[reportUnknownVariableType]
            yield from leaves(part)
    else:
        yield path


class Randomized(Call):
    """A user's function that takes `rng=`: a generator of random numbers for each element, of NumPy's or PyTorch's."""

    __slots__ = ("chance", "epoch", "of_torch", "salt")

    keyed = True

    def __init__(self, fn: Callable[..., Any], chance: Chance, salt: int, of_torch: bool = False) -> None:
        super().__init__("map", fn)
        self.of_torch = of_torch
        self.chance = chance
        self.salt = salt
        self.epoch: tuple[Any, ...] = ()

    def at(self, epoch: tuple[Any, ...]) -> Randomized:
        other = copy(self)
        other.epoch = epoch
        return other

    def seeded(self, seed: int) -> Randomized:
        """Return the same function with another seed."""
        other = copy(self)
        other.chance = self.chance._replace(seed=seed)
        return other

    def generator(self, ticket: Ticket) -> Any:
        """Return the generator of one element, keyed by seed, function, epoch and ticket: NumPy's is counter-based."""
        words = repr((self.chance.seed, self.salt, *leaves((self.epoch, ticket)))).encode()
        if self.of_torch:
            seed = int.from_bytes(blake2b(words, digest_size=8).digest(), "little")
            return require("torch", "map(rng='torch')").Generator().manual_seed(seed)
        key = np.frombuffer(blake2b(words, digest_size=16).digest(), np.uint64)
        return np.random.Generator(np.random.Philox(key=key))

    def call_one(self, item: Any) -> Any:
        element, ticket = item
        rng = self.generator(ticket)
        return self.fn(*element, rng=rng) if self.spread and type(element) is tuple else self.fn(element, rng=rng)

    def over(self, items: Any, kinds: set[type]) -> Any:
        return map(self.call_one, items)

    def run(self, block: Block, term: Deadline = ENDLESS) -> Block:
        if block.failed:
            return super().run(block, term)
        return super().run(Block(list(zip(block.items, block.tickets, strict=True)), block.tickets), term)

    def each(self, items: Iterator[Any], tickets: Tickets) -> Iterator[Any]:
        pairs = zip(items, tickets, strict=True)
        return super().each((pair if type(pair[0]) is not Failure else pair[0] for pair in pairs), tickets)

    async def run_async(self, item: Any, ticket: Ticket) -> Any:
        return await super().run_async((item, ticket), ticket)
