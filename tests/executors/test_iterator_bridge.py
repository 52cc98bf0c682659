"""What reads an iterator: as many items as were ordered, whoever ends its loop in C and wherever."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.elements.columns import ColumnBatch
from asyncdata.executors.iterator_bridge import NO_MORE, InlineBridge, ThreadBridge, patience
from asyncdata.executors.scope import OwnedTask
from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.memory_budget import MemoryBudget
from tests.reference import Boom

pytestmark = pytest.mark.usefixtures("nothing_left")


class FakeScope:
    """What a pump needs of a scope."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.owned = OwnedTask(MemoryBudget())
        self.sharing = None


def pumped(scope: FakeScope, make: Callable[[], Iterable[Any]]) -> ThreadBridge:
    return ThreadBridge(scope, lambda: (make(), None), "test-pump", 0)  # type: ignore[arg-type]


async def test_a_group_that_is_broken_off_anywhere_loses_and_repeats_nothing() -> None:
    chance = random.Random(1)
    read = 0

    class Numbers:
        """Numbers, of which every tenth is a failure."""

        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            nonlocal read
            if chance.random() < 0.02:
                pump.break_off()
            if read == 5000:
                raise StopIteration
            read += 1
            if read % 10 == 0:
                raise Boom(read)
            return read

    scope = FakeScope()
    pump = pumped(scope, Numbers)
    found: list[Any] = []
    while items := await pump.pull(limit := chance.choice([1, 7, 300, 3000])):
        assert len(items) <= limit
        found += items
        assert read <= len(found) + pump.ordered  # never more than was ordered
    assert [item.error.args[0] if type(item) is Failure else item for item in found] == [*range(1, 5001)]
    assert await pump.pull(10) == []
    pump.stop()
    await scope.owned.join_async()


async def test_a_run_waits_for_the_end_of_one_that_was_stopped_in_an_item() -> None:
    """Such as a stream of Hugging Face, whose runs share a state."""
    entered, resume = threading.Event(), threading.Event()

    class Shared:
        place = 0

        def __iter__(self) -> Iterator[int]:
            self.place = 0
            while self.place < 5:
                place = self.place
                if place == 2 and not resume.is_set():
                    entered.set()
                    resume.wait()
                self.place = place + 1
                yield place

    scope, source = FakeScope(), Shared()
    make: Any = lambda: (iter(source), None)  # noqa: E731
    first = ThreadBridge(scope, make, "first", 0, source=source)  # type: ignore[arg-type]
    items = list(await first.pull(10))
    await asyncio.to_thread(entered.wait)
    first.stop()
    second = ThreadBridge(scope, make, "second", 0, source=source)  # type: ignore[arg-type]
    second.order(1)
    assert not second.begun
    assert items == [0, 1][: len(items)]
    resume.set()
    second.ordered = 1
    found: list[Any] = []
    while items := await second.pull(10):
        found += items
    assert found == [0, 1, 2, 3, 4]
    second.stop()
    await scope.owned.join_async()


def test_an_item_that_is_here_does_not_wait_for_the_next_to_be_made() -> None:
    """Not even for code that never waits: a free-threaded interpreter locks a deque as long as it is extended."""
    for _ in range(5):
        seen: list[int] = []
        with ad.Dataset.from_generator(partial(waits_to_be_seen, seen)).prefetch(100).iterate() as items:
            seen.append(next(items))
            assert list(items) == [True, 2, 3]


def waits_to_be_seen(seen: list[int]) -> Iterator[int]:
    yield 0
    deadline = time.monotonic() + 60
    while not seen and time.monotonic() < deadline:
        pass
    yield bool(seen)
    yield from (2, 3)


async def test_what_is_read_here_is_given_once_and_in_order_wherever_it_fails_or_is_odd() -> None:
    chance, asked = random.Random(1), 0

    class Numbers:
        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            nonlocal asked
            asked += 1
            if asked == 50_001:
                raise StopIteration
            assert asked <= 50_000, "what has ended is not asked again"
            if asked % 5000 == 0:
                raise Boom(asked)
            return asked

    def lay(items: list[int]) -> ColumnBatch:
        sizes.append(len(items))
        if any(item % 777 == 0 for item in items):
            raise ValueError(items)
        return ColumnBatch((np.array(items),), len(items))

    sizes: list[int] = []
    found: list[Any] = []
    pump = InlineBridge(Numbers, lay, 100)
    while items := await pump.pull(limit := chance.choice([1, 7, 300, 3000])):
        assert len(items) <= limit
        found += (item[0] for item in items.items) if isinstance(items, Block) else items
        assert asked <= len(found) + len(pump.odd) + pump.over
    assert [item.error.args[0] if type(item) is Failure else item for item in found] == [*range(1, 50_001)]
    assert max(sizes) == 100
    pump.stop()


async def test_what_cannot_be_begun_here_is_one_failure_and_what_was_begun_is_closed() -> None:
    def fail() -> Iterator[int]:
        raise Boom

    pump = InlineBridge(fail, ColumnBatch, 100)
    assert [type(item) for item in await pump.pull(10)] == [Failure]
    assert (await pump.pull(10), pump.begun) == ([], False)
    pump.stop()

    closed: list[bool] = []

    def numbers() -> Iterator[int]:
        try:
            yield from range(100)
        finally:
            closed.append(True)

    pump = InlineBridge(numbers, lambda items: ColumnBatch((np.array(items),), len(items)), 100)
    assert len(await pump.pull(1)) == 1
    assert pump.begun
    pump.stop()
    assert (closed, await pump.pull(1)) == ([True], [])


async def test_left_in_the_middle_of_a_group_it_reads_nothing_more() -> None:
    read: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(100_000):
            if number == 3000:
                pump.stop()
            read.append(number)
            yield number

    scope = FakeScope()
    pump = pumped(scope, numbers)
    pump.order(100_000)
    while not pump.over:
        await asyncio.sleep(0)
    await scope.owned.join_async()
    assert len(read) == 3001


async def test_what_ends_is_not_asked_again() -> None:
    asked = 0

    class Twice:
        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            nonlocal asked
            asked += 1
            pump.break_off()
            if asked < 3:
                return asked
            raise StopIteration

    scope = FakeScope()
    pump = pumped(scope, Twice)
    found: list[Any] = []
    while items := await pump.pull(100):
        found += items
    assert (found, asked) == ([1, 2], 3)
    pump.stop()
    await scope.owned.join_async()


async def test_a_group_is_broken_off_only_for_who_waits_for_less() -> None:
    scope = FakeScope()
    pump = pumped(scope, lambda: ())
    items = iter(range(9))
    permits = pump.permitted(items, 5)
    pump.request_soon(5)
    assert permits == [*[items] * 5, NO_MORE]
    pump.request_soon(4)
    assert permits == [NO_MORE] * 6
    pump.signal.armed, pump.enough = True, 3
    assert pump.permitted(items, 5)[2:4] == [items, NO_MORE]
    pump.stop()
    assert pump.permitted(items, 5)[0] is NO_MORE
    await scope.owned.join_async()


def test_all_that_is_asked_for_is_waited_for_where_it_comes_swiftly() -> None:
    assert patience(7, 4096, 2e-3) == 0, "single items, each long in coming"
    assert patience(1000, 4096, 5e-3) == 2e-3, "a group, of items that are worth being woken for"
    assert patience(2000, 4000, 2e-3) == pytest.approx(8e-3), "twice as long as all of them take"
    assert patience(100, 100, 1e-4) == 2e-3, "no less than a timer can tell"


class NoTask(Exception):
    """What a task factory raises."""


async def test_a_loop_that_makes_no_task_is_an_error() -> None:
    """As `asyncio.eager_task_factory` of Python 3.13.0 raises on a loop of uvloop 0.23."""

    async def numbers() -> AsyncIterator[int]:
        yield 0

    def refuse(loop: asyncio.AbstractEventLoop, coroutine: Any, **kwargs: Any) -> asyncio.Task[Any]:
        coroutine.close()
        raise NoTask

    elements = aiter(ad.Dataset.from_async_iterable(numbers))
    asyncio.get_running_loop().set_task_factory(refuse)
    try:
        with pytest.raises(NoTask):
            await anext(elements)
    finally:
        asyncio.get_running_loop().set_task_factory(None)
