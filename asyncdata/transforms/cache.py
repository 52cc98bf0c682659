"""cache: elements of the first epoch are kept in memory for the following ones."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import Any

from asyncdata.plan import Unary
from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.scope import Scope
from asyncdata.runtime.stage import Fold, Merge, Opener
from asyncdata.structure import freeze
from asyncdata.transforms.select import Skipper

__all__ = ("Cache", "MemoryCache")


class MemoryCache:
    """What has been kept so far: a prefix of the elements, and whether that is all of them.

    Iterators on several threads may fill it at once: they all run the same epoch of the input, so that whoever comes
    first with an element may add it.
    """

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.complete = False
        self.epoch: tuple[Any, ...] | None = None
        self.lock = threading.Lock()

    def begin(self, epoch: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the epoch of the input that is being kept: the first one that was asked for."""
        with self.lock:
            if self.epoch is None:
                self.epoch = epoch
            return self.epoch

    def offer(self, position: int, block: Block) -> None:
        """Keep the elements of `block`, number `position` and following, if they follow what is kept."""
        with self.lock:
            if self.complete or position > len(self.items):
                return
            fresh = next(block.pieces())
            if not fresh.failed:
                added = fresh.items[len(self.items) - position :]
                for item in added:
                    freeze(item)
                self.items.extend(added)

    def kept(self, position: int, count: int) -> Block | None:
        """Return up to `count` kept elements from number `position` on, `None` if there are none."""
        items = self.items[position : position + count]
        return Block(items, range(position, position + len(items))) if items else None

    def adopt(self, other: MemoryCache) -> None:
        """Keep what another cache holds, if that is everything and nothing complete is kept yet."""
        with self.lock:
            if other.complete and not self.complete:
                self.items, self.complete = other.items, True

    def finish(self, position: int) -> None:
        """Say that the input ended after `position` elements."""
        with self.lock:
            self.complete = self.complete or position == len(self.items)


@dataclass(frozen=True, eq=False)
class Cache(Unary):
    """The input's elements, computed once. What was read is kept when an epoch is left early, and read on from there.

    An input that may differ each time it runs (a generator, an unordered map) is kept only if it was read to its end
    in one go.
    """

    store: MemoryCache = field(default_factory=MemoryCache, repr=False)

    def stage(self) -> Merge:
        return Merge(self.blocks)

    async def blocks(self, scope: Scope, inputs: Sequence[Opener], want: Demand) -> Blocks:
        """Yield what is kept, then what the input has beyond it."""
        shared = self.input.repeatable or self.store.complete
        store = self.store if shared else MemoryCache()
        position = 0
        async with AsyncExitStack() as stack:
            source: Blocks | None = None
            while True:
                block = store.kept(position, want.items)
                if block is None:
                    if store.complete:
                        return
                    if source is None:
                        source = self.beyond(position, scope.with_epoch(store.begin(scope.epoch)), inputs, want)
                        await stack.enter_async_context(aclosing(source))
                    read = await anext(source, None)
                    if read is None:
                        break
                    block = Block(read.items, range(position, position + len(read)), read.failed)
                    store.offer(position, block)
                position += len(block)
                yield block
        store.finish(position)
        self.store.adopt(store)

    def beyond(self, position: int, scope: Scope, inputs: Sequence[Opener], want: Demand) -> Blocks:
        """Run the input from element `position` on."""
        return Fold(lambda _: Skipper(position)).open(scope, inputs, want)
