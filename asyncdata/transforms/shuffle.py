"""shuffle: a buffer that elements pass through in random order, and its fusion with repeat.

Elements 0 to n-1 fill the slots of a buffer of n. Element t after those goes to slot `hash(key, t) % n` and pushes out
the element that sits there; at the end the buffer is drained in the order of a keyed permutation. This is the law of
tf.data's buffer (a uniformly chosen element leaves, the next takes its place), and what the buffer holds at t is a
function of t and the key alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from asyncdata.plan import Unary, repeated
from asyncdata.runtime.block import Block, Blocks, Demand, Failure, Ticket, children
from asyncdata.runtime.scope import Scope
from asyncdata.runtime.stage import Fold, Merge, Opener, Step, breathe, split

__all__ = ("Shuffle", "ShuffleRepeat", "Shuffler", "drain_order", "epoch_key", "slots")


def epoch_key(seed: int, epoch: tuple[Any, ...]) -> int:
    """Return the key of one epoch's order: 64 bits of a hash of seed and epoch, the same on every machine."""
    return int.from_bytes(blake2b(repr((seed, plain(epoch))).encode(), digest_size=8).digest(), "little")


def plain(path: Any) -> Any:
    """Return a path of epochs and tickets as nested tuples: the same however its elements came in blocks."""
    return tuple(map(plain, cast("Sequence[Any]", path))) if isinstance(path, (tuple, list, range)) else path


def mixed(start: int, stop: int, key: int) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each of `start` to `stop` (the finalizer of splitmix64, Steele et al. 2014)."""
    z = np.arange(start, stop, dtype=np.uint64)
    with np.errstate(over="ignore"):
        z = z * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def slots(start: int, stop: int, size: int, key: int) -> list[int]:
    """Return the slot of each of elements `start` to `stop` in a buffer of `size`."""
    return ((mixed(start, stop, key) >> np.uint64(32)) * np.uint64(size) >> np.uint64(32)).tolist()


def drain_order(size: int, key: int) -> list[int]:
    """Return the order in which a buffer that holds `size` elements is drained."""
    return np.argsort(mixed(0, size, ~key & 0xFFFFFFFFFFFFFFFF), kind="stable").tolist()


@dataclass(frozen=True, eq=False)
class Shuffle(Unary):
    """Elements in random order, through a buffer of `size`; in another order each epoch if `reshuffle`."""

    size: int
    seed: int
    reshuffle: bool = True

    def stage(self) -> Fold:
        return Fold(self.step)

    def step(self, scope: Scope) -> Shuffler:
        """Return the buffer for one epoch."""
        return Shuffler(self.size, epoch_key(self.seed, scope.epoch if self.reshuffle else ()))

    def label(self) -> str:
        return f"shuffle({size_label(self.size, self.reshuffle)})"


EVERYTHING = 1 << 31
"""A buffer of this size holds the whole input."""


def size_label(size: int, reshuffle: bool) -> str:
    shown = "everything" if size >= EVERYTHING else size
    return f"{shown}{'' if reshuffle else ', reshuffle_each_iteration=False'}"


class Shuffler(Step):
    """The buffer: items and their tickets by slot."""

    def __init__(self, size: int, key: int) -> None:
        self.size = size
        self.key = key
        self.held: list[tuple[Any, Ticket]] = []
        self.seen = 0
        self.failed = False

    def need(self, want: int) -> int:
        return want + min(self.size - len(self.held), 4096)

    def feed(self, block: Block) -> Block:
        self.failed |= block.failed
        filling = min(len(block), self.size - len(self.held))
        self.held.extend(zip(block.items[:filling], block.tickets[:filling], strict=True))
        self.seen += filling
        if filling == len(block):
            return Block([], ())
        return self.exchange(block.part(filling, len(block)))

    def exchange(self, block: Block) -> Block:
        """Put each item into its slot; what was there comes out."""
        held = self.held
        out: list[tuple[Any, Ticket]] = []
        push = out.append
        places = slots(self.seen, self.seen + len(block), self.size, self.key)
        for place, pair in zip(places, zip(block.items, block.tickets, strict=True), strict=True):
            push(held[place])
            held[place] = pair
        self.seen += len(block)
        return self.block(out)

    def flush(self) -> Iterator[Block]:
        order = drain_order(len(self.held), self.key)
        if order:
            yield self.block([self.held[place] for place in order])

    def block(self, pairs: list[tuple[Any, Ticket]]) -> Block:
        items, tickets = map(list, zip(*pairs, strict=True))
        return Block(items, tickets, self.failed and Failure in set(map(type, items)))


@dataclass(frozen=True, eq=False)
class ShuffleRepeat(Unary):
    """shuffle, then repeat: the next epoch fills the buffer while the last one drains, and epochs stay apart."""

    size: int
    seed: int
    reshuffle: bool
    count: int

    def stage(self) -> Merge:
        return Merge(self.blocks)

    @property
    def cardinality(self) -> int:
        return repeated(self.input.cardinality, self.count)

    def label(self) -> str:
        return f"shuffle_and_repeat({size_label(self.size, self.reshuffle)}, count={self.count})"

    async def blocks(self, scope: Scope, inputs: Sequence[Opener], want: Demand) -> Blocks:
        """Yield epoch after epoch, each through a buffer of its own."""
        drained: list[Block] = []
        repetition = 0
        while repetition != self.count:
            epoch = scope.at(repetition)
            shuffler = Shuffler(self.size, epoch_key(self.seed, epoch.epoch if self.reshuffle else ()))
            inner = Demand()
            async with aclosing(inputs[0](epoch, inner)) as source:
                async for block in self.overlap(shuffler, source, inner, drained, want):
                    yield block
                async for block in self.epoch(shuffler, source, inner, want):
                    yield Block(block.items, children(repetition, block.tickets), block.failed)
            if shuffler.seen == 0:
                return
            drained = [Block(b.items, children(repetition, b.tickets), b.failed) for b in shuffler.flush()]
            repetition += 1
        for block in drained:
            for part in split(block, want):
                yield part

    async def overlap(
        self, shuffler: Shuffler, source: Blocks, inner: Demand, drained: list[Block], want: Demand
    ) -> Blocks:
        """Drain the last epoch; for each element that leaves, one of this epoch comes in."""
        for block in drained:
            for part in split(block, want):
                inner.items = min(len(part), self.size - len(shuffler.held))
                if inner.items > 0 and (read := await anext(source, None)) is not None:
                    shuffler.feed(read)
                yield part

    async def epoch(self, shuffler: Shuffler, source: Blocks, inner: Demand, want: Demand) -> Blocks:
        """Yield what the rest of this epoch pushes out of the buffer."""
        while True:
            inner.items = shuffler.need(want.items)
            read = await anext(source, None)
            if read is None:
                return
            out = shuffler.feed(read)
            if not out.items:
                await breathe()
            for part in split(out, want):
                yield part
