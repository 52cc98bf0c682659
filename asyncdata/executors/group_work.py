"""GroupWork: the work of one worker on a group of elements, wherever it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, compress
from math import inf
from time import perf_counter
from typing import Any, Final, TypeAlias

from asyncdata.elements.columns import ColumnBatch
from asyncdata.elements.structure import nbytes
from asyncdata.executors.function_call import ENDLESS, Call, Deadline
from asyncdata.executors.function_times import FunctionKey, FunctionTimes
from asyncdata.executors.global_random import key_of
from asyncdata.memory.buffer_pool import Empty, empty
from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.queue import now_on
from asyncdata.runtime.tickets import FilteredTickets

__all__ = ("Done", "GroupWork")

LARGE: Final = 1 << 14
"""Bytes of an element from which on it is copied into its batch at once, before others push it out of the cache."""

MOST_READY: Final = 256
"""At most so many results that are ready at once are made together."""


Done: TypeAlias = tuple[Block, int]
"""The results of the first elements of a block, and how many these are."""


@dataclass(frozen=True)
class GroupWork:
    """Functions called one after another on each element; the result of a predicate says whether the element stays."""

    calls: tuple[Call, ...]
    rows: int | None = None
    """The size of batches made from results: complete batches are made at once, as columns if possible."""
    seed: int | None = None
    """The seed from which global generators are seeded before each element, in a process of its own."""
    times: FunctionTimes | None = field(default=None, compare=False)
    """The time of each function where the work is done, if there are several."""

    @property
    def label(self) -> str:
        """How messages name it."""
        return " → ".join(call.label for call in self.calls)

    def at(self, epoch: tuple[Any, ...], seconds: dict[FunctionKey, float] | None = None) -> GroupWork:
        """Return the work as it is done in an epoch; the times of several functions are added to `seconds`."""
        calls = [call.at(epoch) for call in self.calls]
        if self.seed is not None:
            calls = [call.reseeding(key_of(self.seed, epoch, call.name, call.number)) for call in calls]
        times = FunctionTimes(tuple([call.name for call in calls]), seconds) if len(calls) > 1 else None
        return GroupWork(tuple(calls), self.rows, times=times)

    def seeded(self, seed: int | None) -> GroupWork:
        """Return the work with a seed of global generators."""
        return self if seed == self.seed else replace(self, seed=seed)

    @property
    def is_keyed(self) -> bool:
        """Whether results depend on the tickets of elements."""
        return self.seed is not None or any(call.keyed for call in self.calls)

    def run(self, block: Block, empty: Empty = empty) -> Block:
        """Call the functions for a block. Batches of large elements are made in arrays from `empty`."""
        return self.attempt(block, ENDLESS, empty)[0]

    def attempt(self, block: Block, term: Deadline, empty: Empty = empty) -> Done:
        """Call the functions over a block, or over its first elements if that takes longer than the term."""
        rows, count = self.rows, block.count
        if rows is None or block.failed or count % rows or not count:
            return self.call_in_parts(block, term)
        results = self.each(block.slice(0, rows))
        first = [next(results)]
        if type(first[0]) is Failure or nbytes(first[0]) * rows < LARGE:
            others, done = self.call_in_parts(block.slice(1, count), term)
            return joined(first, block, others), done + 1
        whole = term._replace(end=inf)
        batches = [self.batch(first, results, block.slice(0, rows), empty, whole)]
        for start in range(rows, count, rows):
            if term.over:
                return Block.join(batches), start
            part = block.slice(start, start + rows)
            results = self.each(part)
            batches.append(self.batch([next(results)], results, part, empty, whole))
        return Block.join(batches), count

    def batch(self, first: list[Any], results: Iterator[Any], block: Block, empty: Empty, term: Deadline) -> Block:
        """Return the first result of a batch, which the list then no longer holds, and the others, as columns if they
        can be."""
        columns = None
        if type(first[0]) is not Failure and nbytes(first[0]) >= LARGE:
            columns = ColumnBatch.room_for(first[0], len(block), empty)
        if columns is None:
            return stacked(joined(first, block, self.call_in_parts(block.slice(1, len(block)), term)[0]))
        first.clear()
        return self.filled(block, columns, while_wanted(results, term))

    def filled(self, block: Block, columns: ColumnBatch, results: Iterator[Any]) -> Block:
        """Put results into their rows, each while it is in the processor's cache; from the first that is unlike the
        others on they stay as they are."""
        place, odd = columns.fill(1, results)
        if not odd:
            return Block.of_columns([columns], block.tickets)
        count = len(block)
        before = Block.of_columns([columns[:place]], block.tickets.slice(0, place))
        after, _ = self.call_in_parts(block.slice(place + 1, count))
        return Block.join([before, joined(odd, block.slice(place, count), after)])

    def each(self, block: Block) -> Iterator[Any]:
        """Yield the results of one element after the other; with several functions the first is made at once."""
        results: Iterator[Any] = iter(block.items)
        taken: list[float] = []
        due = self.times is not None and self.times.is_due(1)
        for call in self.calls:
            results = call.each(results, block.tickets)
            if due:
                begin = perf_counter()
                first = [next(results)]
                taken.append(perf_counter() - begin)
                results = chain(first_of(first), results)
        if self.times is not None and due:
            self.times.add(1, taken)
        return results

    def call_in_parts(self, block: Block, term: Deadline = ENDLESS) -> Done:
        """Call the functions for a block, several functions part by part, so that no element stops between two
        functions."""
        count = block.count
        if not count:
            return block, 0
        if len(self.calls) == 1:
            call = self.calls[0]
            result = call.run(block, term)
            done = result.count
            return apply_filters(block.slice(0, done), result) if call.is_predicate else result, done
        parts: list[Block] = []
        step, place = len(self.calls) * term.step, 0
        while place < count and not (place and term.over):
            parts.append(self.call_in_turn(block.slice(place, place + step)))
            place += step
        return Block.join(parts), min(place, count)

    def call_in_turn(self, block: Block) -> Block:
        """Call one function after the other over a block."""
        count, times = len(block), self.times
        times = times if times is not None and times.is_due(count) else None
        taken: list[float] = []
        before = 0.0 if times is None else perf_counter()
        for call in self.calls:
            if not len(block):
                break
            result = call.run(block)
            if times is not None:
                taken.append(perf_counter() - before)
                before += taken[-1]
            block = apply_filters(block, result) if call.is_predicate else result
        if times is not None:
            times.add(count, taken)
        return block

    @property
    def at_once(self) -> Callable[[Block], Block | None] | None:
        """A function for a block of one element that does not wait, if there is one."""
        quick = self.quick
        return None if quick is None else partial(tried, quick)

    @property
    def quick(self) -> Callable[[Any], Any] | None:
        """The method of the only function that returns its result, or `None`, without waiting, if it has one."""
        only = self.calls[0] if len(self.calls) == 1 and not self.calls[0].is_predicate else None
        return None if only is None else getattr(only.fn, "at_once", None)

    def run_ready(self, block: Block, start: int, most: int, seconds: float) -> Block | None:
        """Return results that are ready without waiting, from `start` on, in about so many seconds, if any."""
        quick, results = self.quick, list[Any]()
        if quick is None or block.failed:
            return None
        end = perf_counter() + seconds
        for item in block.items[start : start + min(most, MOST_READY)]:
            result = quick(item)
            if result is None:
                break
            results.append(result)
            if perf_counter() > end:
                break
        return Block(results, block.tickets.slice(start, start + len(results))) if results else None

    async def run_async(self, block: Block) -> Block:
        """Call or await the functions on a block of one element."""
        times = self.times if self.times is not None and self.times.is_due(1) else None
        taken: list[float] = []
        loop = None if times is None else asyncio.get_running_loop()
        before = 0.0 if loop is None else now_on(loop)
        for call in self.calls:
            if block.failed or not block.items:
                break
            result = await call.run_async(block.items[0], block.tickets[0]) if call.is_async else call.run(block)
            if type(result) is not Block:
                result = Block([result], block.tickets, type(result) is Failure)
            block = apply_filters(block, result) if call.is_predicate else result
            if loop is not None:
                taken.append(now_on(loop) - before)
                before += taken[-1]
        if times is not None:
            times.add(1, taken)
        return block


def first_of(held: list[Any]) -> Iterator[Any]:
    """Yield the only item of a list, which then no longer holds it."""
    yield held.pop()


def tried(quick: Callable[[Any], Any], block: Block) -> Block | None:
    """Return the result of a block of one element, `None` if it must be awaited."""
    result = None if block.failed or not block.items else quick(block.items[0])
    return None if result is None else Block([result], block.tickets)


def while_wanted(results: Iterator[Any], term: Deadline) -> Iterator[Any]:
    """Yield results as long as they are wanted; each is released before the next one is made."""
    term.check()
    for result in results:
        yield result
        del result
        term.check()


def joined(first: list[Any], block: Block, rest: Block) -> Block:
    """Return the first result of a block and those of the rest as one block."""
    return Block.join([Block(first, block.tickets.slice(0, 1), type(first[0]) is Failure), rest])


def stacked(block: Block) -> Block:
    """Return a block in columns if it can be."""
    columns = None if block.failed else ColumnBatch.made_of(block.items)
    return block if columns is None else Block.of_columns([columns], block.tickets)


def apply_filters(block: Block, verdicts: Block) -> Block:
    """Return the items of `block` whose verdict is true, and the verdicts that failed, in place."""
    if verdicts.failed:
        places = [place for place, verdict in enumerate(verdicts.items) if verdict]
        pairs = [(block.items[place], verdicts.items[place]) for place in places]
        items = [verdict if type(verdict) is Failure else item for item, verdict in pairs]
        return Block(items, FilteredTickets(block.tickets, places), True)
    items = list(compress(block.items, verdicts.items))
    if len(items) == len(block.items):
        return block
    return Block(items, FilteredTickets(block.tickets, list(compress(range(len(block)), verdicts.items))))
