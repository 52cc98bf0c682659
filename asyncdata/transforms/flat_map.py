"""flat_map: a dataset for each element, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from asyncdata.plan import Node, node_of
from asyncdata.runtime.block import Block, Blocks, Demand, Failure, children
from asyncdata.runtime.executors import Call
from asyncdata.runtime.scope import Scope
from asyncdata.runtime.stage import Merge, Opener, breathe

__all__ = ("FlatMap", "inner_plan")


async def inner_plan(call: Call, block: Block) -> Node | Failure:
    """Return the plan of the dataset that a user's function makes of the one element of `block`, or the failure."""
    item, ticket = block.items[0], block.tickets[0]
    if block.failed:
        return item
    result = await call.run_async(item, ticket) if call.is_async else call.run(block).items[0]
    if type(result) is Failure:
        return result
    try:
        return node_of(result, call)
    except TypeError as error:
        return call.failure(error, ticket)


@dataclass(frozen=True, eq=False)
class FlatMap(Node):
    """The elements of `function(element)`, a dataset, for each element in turn."""

    input: Node
    function: Call

    def stage(self) -> Merge:
        return Merge(self.blocks)

    def label(self) -> str:
        return self.function.name

    async def blocks(self, scope: Scope, inputs: Sequence[Opener], want: Demand) -> Blocks:
        """Read one element, run its dataset to the end, then read the next."""
        async with aclosing(inputs[0](scope, Demand())) as outer:
            async for block in outer:
                ticket = block.tickets[0]
                plan = await inner_plan(self.function, block)
                if type(plan) is Failure:
                    yield Block([plan], [ticket], True)
                    continue
                async with aclosing(plan.open(scope.at(ticket), want)) as source:
                    async for part in source:
                        yield Block(part.items, children(ticket, part.tickets), part.failed)
                await breathe()
