"""Hours of work in virtual time: concurrency is exactly what was asked for, no less and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.testing import virtual_time

HOUR = 3600.0


class Work:
    """A coroutine function that takes an hour, and knows how often it ran at once."""

    def __init__(self) -> None:
        self.running = self.most = 0

    async def __call__(self, x: Any) -> Any:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(HOUR)
        self.running -= 1
        return x

    async def pair(self, *parts: Any) -> Any:
        return await self(parts)


class Hourly:
    """An async iterable that needs an hour for each element."""

    def __init__(self, name: int, count: int) -> None:
        self.name, self.count = name, count

    async def __aiter__(self) -> AsyncIterator[tuple[int, int]]:
        for place in range(self.count):
            await asyncio.sleep(HOUR)
            yield self.name, place


def hours(body: Callable[[], Coroutine[Any, Any, None]]) -> float:
    """Run a coroutine function and return how many hours it took."""
    with asyncio.Runner(loop_factory=virtual_time) as runner:
        runner.run(body())
        return runner.get_loop().time() / HOUR


def drained(ds: ad.Dataset, expected: list[Any], ordered: bool = True) -> float:
    """Return the hours that a dataset takes to deliver what is expected."""

    async def body() -> None:
        found = [element async for element in ds.with_options(ad.Options(placement="current"))]
        assert found == expected if ordered else sorted(found) == sorted(expected)

    return hours(body)


@pytest.mark.parametrize("calls", [1, 2, 4, 8, 24, 100])
@pytest.mark.parametrize("ordered", [True, False])
def test_a_parallel_map_takes_the_time_of_its_calls(calls: int, ordered: bool) -> None:
    work = Work()
    ds = ad.Dataset.range(24).map(work, num_parallel_calls=calls, deterministic=ordered)
    assert drained(ds, list(range(24)), ordered) == pytest.approx(max(1, 24 / calls))
    assert work.most == min(calls, 24)


def test_a_sequential_map_takes_the_sum() -> None:
    work = Work()
    assert drained(ad.Dataset.range(24).map(work), list(range(24))) == pytest.approx(24)
    assert work.most == 1


@pytest.mark.parametrize("calls", [1, 2, 4])
def test_parallel_interleave_works_on_as_many_inputs_at_once_as_asked(calls: int) -> None:
    work = Work()
    ds = ad.Dataset.range(4).interleave(
        lambda name: ad.Dataset.range(6).map(lambda place: (name, place)).map(work.pair),
        cycle_length=4,
        num_parallel_calls=calls,
    )
    expected = [(name, place) for place in range(6) for name in range(4)]
    assert drained(ds, expected) == pytest.approx(24 / calls)
    assert work.most == calls


@pytest.mark.parametrize("calls", [1, 2, 4])
def test_parallel_interleave_reads_as_many_inputs_at_once_as_asked(calls: int) -> None:
    ds = ad.Dataset.range(4).interleave(
        lambda name: ad.Dataset.from_async_iterable(Hourly(name, 6)), cycle_length=4, num_parallel_calls=calls
    )
    expected = [(name, place) for place in range(6) for name in range(4)]
    assert drained(ds, expected) == pytest.approx(24 / calls)


def test_unordered_interleave_waits_for_no_slow_input() -> None:
    """Inputs of 1, 2, 3 and 4 elements, all read at once: the longest one decides."""
    ds = ad.Dataset.range(1, 5).interleave(
        lambda count: ad.Dataset.from_async_iterable(Hourly(count, count)),
        cycle_length=4,
        num_parallel_calls=4,
        deterministic=False,
    )
    expected = [(count, place) for count in range(1, 5) for place in range(count)]
    assert drained(ds, expected, ordered=False) == pytest.approx(4)


def test_sequential_interleave_takes_the_sum() -> None:
    ds = ad.Dataset.range(3).interleave(lambda name: ad.Dataset.from_async_iterable(Hourly(name, 2)), cycle_length=3)
    assert drained(ds, [(name, place) for place in range(2) for name in range(3)]) == pytest.approx(6)


def test_prefetch_overlaps_with_the_consumer() -> None:
    """Ten elements of an hour each, ten steps of an hour each: eleven hours, and twenty without prefetch."""

    async def train(ds: ad.Dataset) -> None:
        async for _ in ds:
            await asyncio.sleep(HOUR)

    plain = ad.Dataset.range(10).map(Work()).with_options(ad.Options(placement="current", optimize=False))
    assert hours(lambda: train(plain.prefetch(1))) == pytest.approx(11)
    assert hours(lambda: train(plain)) == pytest.approx(20)


def test_two_maps_work_at_the_same_time() -> None:
    """A pipeline of parallel stages takes the time of its slowest stage, and once through the other."""
    first, second = Work(), Work()
    ds = ad.Dataset.range(12).map(first, num_parallel_calls=2).map(second, num_parallel_calls=4)
    assert drained(ds, list(range(12))) == pytest.approx(7)
    assert (first.most, second.most) <= (2, 4)


def test_an_unordered_map_delivers_what_is_ready_first() -> None:
    async def sleep(x: int) -> int:
        await asyncio.sleep((10 - x) * HOUR)
        return x

    ds = ad.Dataset.range(10).map(sleep, num_parallel_calls=10, deterministic=False)
    assert drained(ds, list(reversed(range(10)))) == pytest.approx(10)


def test_an_ordered_map_keeps_working_behind_a_slow_element() -> None:
    async def sleep(x: int) -> int:
        await asyncio.sleep(HOUR * (4 if x == 0 else 1))
        return x

    ds = ad.Dataset.range(8).map(sleep, num_parallel_calls=2)
    assert drained(ds, list(range(8))) <= 7


def test_timeout_in_the_consumer_cancels_a_wait_of_hours() -> None:
    async def body() -> None:
        ds = ad.Dataset.range(10).map(Work()).with_options(ad.Options(placement="current"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(HOUR * 2.5):
                async for _ in ds:
                    pass

    assert hours(body) == pytest.approx(2.5)
