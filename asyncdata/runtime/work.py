"""Work: what one lane does with a group of elements, wherever it runs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from typing import Any

from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.executors import Call
from asyncdata.runtime.tickets import Kept

__all__ = ("Work",)


@dataclass(frozen=True)
class Work:
    """Functions called one after the other on each element; the result of one that `keeps` says whether it stays."""

    calls: tuple[Call, ...]

    @property
    def label(self) -> str:
        """How messages name it."""
        return " → ".join(call.label for call in self.calls)

    def at(self, epoch: tuple[Any, ...]) -> Work:
        """Return the work as it is done in an epoch."""
        return Work(tuple([call.at(epoch) for call in self.calls]))

    def run(self, block: Block) -> Block:
        """Call the functions over a block."""
        for call in self.calls:
            if not len(block):
                break
            result = call.run(block)
            block = sift(block, result) if call.keeps else result
        return block

    async def run_async(self, block: Block) -> Block:
        """Call or await the functions on a block of one element."""
        for call in self.calls:
            if block.failed or not block.items:
                break
            result = await call.run_async(block.items[0], block.tickets[0]) if call.is_async else call.run(block)
            if type(result) is not Block:
                result = Block([result], block.tickets, type(result) is Failure)
            block = sift(block, result) if call.keeps else result
        return block


def sift(block: Block, verdicts: Block) -> Block:
    """Return the items of `block` whose verdict is true, and the verdicts that failed, in place."""
    if verdicts.failed:
        places = [place for place, verdict in enumerate(verdicts.items) if verdict]
        pairs = [(block.items[place], verdicts.items[place]) for place in places]
        items = [verdict if type(verdict) is Failure else item for item, verdict in pairs]
        return Block(items, Kept(block.tickets, places), True)
    items = list(compress(block.items, verdicts.items))
    if len(items) == len(block.items):
        return block
    return Block(items, Kept(block.tickets, list(compress(range(len(block)), verdicts.items))))
