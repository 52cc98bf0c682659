"""map(batch=n): a function of many elements at once, whose results are elements again."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass, field
from types import CoroutineType
from typing import Any, ClassVar

from asyncdata.elements.structure import stack, unstack
from asyncdata.errors import StructureError
from asyncdata.executors.function_call import ENDLESS, Call, Deadline
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import PHYSICAL, REPLACEABLE, Node, OneForOne, check_arguments, check_count
from asyncdata.graph.stages import Apply, Fold, Opener, Step, split
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.tickets import FRESH, Ordinals, Start, Ticket
from asyncdata.transforms.function_node import Called
from asyncdata.transforms.map import workers_for

__all__ = ("MapBatches",)


class Batched(Call):
    """A user's function of a batch, called on blocks of elements that are items themselves.

    If it fails, elements are tried one by one, so that only those fail that cause the error.
    """

    __slots__ = ()

    def run(self, block: Block, term: Deadline = ENDLESS) -> Block:
        """Call the function on the elements of each block that have not failed."""
        done: list[Block] = []
        for part in block.items:
            done.append(put(part, good := part.good_places(), self.tried(part, good)))
            if term.over:
                break
        return several(done)

    async def run_async(self, item: Block, ticket: Ticket) -> Block:
        good = item.good_places()
        return several([put(item, good, await self.tried_async(item, good))])

    def tried(self, block: Block, places: Sequence[int]) -> list[Any]:
        """Return the results for the elements at these places, failures for those that fail alone."""
        try:
            return rows(self.call_one(stacked(block, places)), len(places)) if places else []
        except (Exception, CancelledError) as error:
            if len(places) == 1:
                return [self.failure(error, block.tickets[places[0]])]
        return [result for place in places for result in self.tried(block, [place])]

    async def tried_async(self, block: Block, places: Sequence[int]) -> list[Any]:
        """Return the same as `tried`, for a coroutine function."""
        ticket = block.tickets[places[0]] if places else None
        try:
            result: Any = await super().run_async(stacked(block, places), ticket) if places else []
            if type(result) is not Failure:
                return rows(result, len(places))
        except Exception as error:
            result = self.failure(error, ticket)
        if len(places) == 1:
            return [result]
        return [one for place in places for one in await self.tried_async(block, [place])]


def stacked(block: Block, places: Sequence[int]) -> Any:
    """Return a batch of the elements at some places."""
    return stack([block.items[place] for place in places])


def put(block: Block, places: Sequence[int], results: list[Any]) -> Block:
    items = list(block.items)
    for place, result in zip(places, results, strict=True):
        items[place] = result
    return Block(items, block.tickets, Failure in set(map(type, items)))


def rows(result: Any, count: int) -> list[Any]:
    """Return the elements in a function's result: a list as it is, else along the first axis."""
    if type(result) is CoroutineType:
        result.close()
        raise TypeError("the function returned a coroutine: define it with `async def`")
    found: list[Any] = result if isinstance(result, list) else unstack(result)  # pyright: ignore[reportUnknownVariableType]
    if len(found) != count:
        raise StructureError(f"the function was given {count} elements, and returned {len(found)}")
    return found


class Grouper(Step):
    """Collects elements until there are enough for a batch, which goes out as one item: a block."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.held: list[Block] = []
        self.count = 0

    def need(self, want: int) -> int:
        return want * self.size - self.count

    def feed(self, block: Block) -> Block:
        self.held.append(block)
        self.count += len(block)
        if self.count < self.size:
            return Block([])
        joined, end = Block.join(self.held), self.count - self.count % self.size
        self.count -= end
        self.held = [block.slice(len(block) - self.count, len(block))] if self.count else []
        return several([joined.slice(at, at + self.size) for at in range(0, end, self.size)])

    def flush(self) -> Iterator[Block]:
        if self.held:
            yield several([Block.join(self.held)])


def several(groups: list[Block]) -> Block:
    """Return groups as the items of one block; they have the tickets of their elements, and need none of their own."""
    return Block(groups, Ordinals(0, len(groups)))


@dataclass(frozen=True)
class Grouped:
    """Elements in groups of `size` through a stage, and out one by one."""

    size: int
    apply: Apply
    counts: ClassVar[bool] = False

    @property
    def waits(self) -> bool:
        return self.apply.waits

    def open(self, scope: Scope, inputs: Sequence[Opener], want: Demand, start: Start) -> Blocks:
        inner, groups = Demand(), Demand()
        source = inputs[0](scope, inner, start)
        grouping = Fold(lambda _: Grouper(self.size))

        def collected(_: Scope, demand: Demand, __: Start) -> Blocks:
            return grouping.run(Grouper(self.size), source, inner, demand, scope.meter)

        return self.apart(self.apply.open(scope, [collected], groups, FRESH), groups, want)

    async def apart(self, source: Blocks, groups: Demand, want: Demand) -> Blocks:
        """Split groups; request as many as the demand needs."""
        async with aclosing(source):
            while True:
                groups.items = max(1, want.items // self.size)
                done = await anext(source, None)
                if done is None:
                    return
                for group in done.items:
                    for part in split(group, want):
                        yield part


@dataclass(frozen=True, eq=False)
class MapBatches(Called, OneForOne):
    """A function called on batches of `size` elements, several at once if asked; always in order."""

    function: Batched = field(metadata=REPLACEABLE)
    size: int = field(metadata=PHYSICAL)

    @property
    def calls(self) -> tuple[Call, ...]:
        return (self.function,)

    @property
    def holds(self) -> int:
        return self.size

    @staticmethod
    def of(
        plan: Node,
        fn: Callable[..., Any],
        size: Any,
        calls: int | None,
        executor: Executor | str | int | None,
        pure: bool = False,
    ) -> MapBatches:
        """Return a map of batches for the user's arguments."""
        call = Batched("map", fn)
        size = check_count("map", "batch", size, 1)
        check_arguments(call, plan)
        workers, where = workers_for(call, calls, executor)
        return MapBatches(plan, call, size, workers=workers, ordered=True, executor=where, pure=pure)

    def stage(self) -> Grouped:
        return Grouped(
            self.size, Apply((self.function,), workers=self.worker_count, executor=self.executor, copied=self.copied)
        )

    @property
    def elementwise(self) -> bool:
        return self.pure or self.workers is not None

    @property
    def signature(self) -> None:
        return None

    @property
    def identity(self) -> str:
        """Results are those of elements: how many are worked on together may change."""
        return f"{self.function.name[:-1]}, batch)"

    def label(self) -> str:
        return f"{self.function.name[:-1]}, batch={self.size}{self.how()})"
