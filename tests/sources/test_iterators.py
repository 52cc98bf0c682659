from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.executors import iterator_bridge
from asyncdata.runtime.queue import LoopSignal
from tests.reference import Boom, Failed
from tests.running import WAYS, collect, results

pytestmark = pytest.mark.usefixtures("nothing_left")


class Stream:
    def __init__(self, count: int) -> None:
        self.count = count

    async def __aiter__(self) -> AsyncIterator[int]:
        for number in range(self.count):
            await asyncio.sleep(0)
            yield number


class Stubborn:
    """An iterator that fails at 1 and goes on, as classes can and generators cannot."""

    def __init__(self) -> None:
        self.place = -1

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.place += 1
        if self.place == 1:
            raise Boom(1)
        if self.place == 4:
            raise StopIteration
        return self.place

    def __aiter__(self) -> Stubborn:
        return self

    async def __anext__(self) -> int:
        try:
            return next(self)
        except StopIteration:
            raise StopAsyncIteration from None


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("count", [0, 1, 5, 1000])
def test_every_kind_of_source_gives_its_elements(way: Any, count: int) -> None:
    numbers = list(range(count))
    assert way(ad.Dataset.from_generator(lambda: iter(numbers))) == numbers
    assert way(ad.Dataset.from_generator(lambda n: numbers[:n], args=(count,))) == numbers
    assert way(ad.Dataset.from_iterable(numbers)) == numbers
    assert way(ad.Dataset.from_iterable(range(count))) == numbers
    assert way(ad.Dataset.from_iterable(dict.fromkeys(numbers))) == numbers
    assert way(ad.Dataset.from_async_iterable(Stream(count))) == numbers


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_each_iteration_starts_again(way: Any) -> None:
    for ds in (ad.Dataset.from_generator(lambda: iter("ab")), ad.Dataset.from_async_iterable(Stream(2))):
        assert way(ds) == way(ds)
        assert len(way(ds.repeat(2))) == 4


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_failure_ends_a_generator_and_an_iterator_goes_on(way: Any) -> None:
    def generate() -> Iterator[int]:
        yield 0
        raise Boom(1)

    assert way(ad.Dataset.from_generator(generate)) == [0, Failed("Boom(1)")]
    assert way(ad.Dataset.from_generator(Stubborn)) == [0, Failed("Boom(1)"), 2, 3]
    assert way(ad.Dataset.from_iterable(Stubborn())) == [0, Failed("Boom(1)"), 2, 3]
    assert way(ad.Dataset.from_async_iterable(Stubborn())) == [0, Failed("Boom(1)"), 2, 3]


def test_the_failure_of_a_call_is_an_element() -> None:
    def generate() -> Iterator[int]:
        raise Boom("call")

    assert results(ad.Dataset.from_generator(lambda: generate())) == [Failed("Boom('call')")]


def test_a_signature_converts_and_checks_each_element() -> None:
    signature = {"x": ad.TensorSpec((2,), np.float32), "y": ad.TensorSpec((), np.int64)}
    items = [{"x": [1, 2], "y": 3}, {"x": [1, 2, 3], "y": 3}, {"x": [1, 2]}, 5, {"x": [0, 0], "y": "no"}]
    found = results(ad.Dataset.from_generator(lambda: iter(items), output_signature=signature))
    assert found[1:] == [Failed("StructureError")] * 4
    assert (found[0]["x"].dtype, found[0]["y"].dtype) == (np.float32, np.int64)


def test_the_message_says_what_was_expected_and_what_came() -> None:
    ds = ad.Dataset.from_generator(lambda: iter([[1, 2, 3]]), output_signature=ad.TensorSpec((2,), np.int64))
    with pytest.raises(ad.StructureError, match=r"\(2,\).*\(3,\)"):
        list(ds)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [
        (bool, [True, np.False_], [2, 0, 1.0, "x", "", b"1", None, np.int8(1)]),
        (np.int32, [True, 3, 4.0, np.uint8(5)], ["5", b"5", "x", np.array(["5"], object)[0], 4.5, 1j]),
        (np.float32, [False, 3, 0.5, np.float64(0.1)], ["0.5", b"1", "nan"]),
        (np.complex64, [1, 1j], ["1j"]),
    ],
)
def test_numbers_are_made_of_numbers_and_bools_of_bools(way: Any, dtype: Any, good: list[Any], bad: list[Any]) -> None:
    spec = ad.TensorSpec((), dtype)
    found = way(ad.Dataset.from_generator(lambda: [*good, *bad, *good], output_signature=spec))
    assert found[len(good) : -len(good)] == [Failed("StructureError")] * len(bad)
    assert found[: len(good)] == found[-len(good) :] == [np.dtype(dtype).type(one) for one in good]


@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [
        (bool, [[True, False], [], np.ones(2, bool)], [[0, 1], [True, 2], np.ones(2, np.uint8), ["a"]]),
        (np.int32, [[1, 2], [], [True], [2.0]], [["1"], [1, "2"], np.array(["1", 2], object)]),
        (np.float32, [[1, 0.5], []], [["0.5"], [b"1"], np.array([b"1"])]),
    ],
)
def test_so_are_arrays_of_them(dtype: Any, good: list[Any], bad: list[Any]) -> None:
    spec = ad.TensorSpec((None,), dtype)
    found = results(ad.Dataset.from_generator(lambda: [*bad, *good], output_signature=spec))
    assert found[: len(bad)] == [Failed("StructureError")] * len(bad)
    assert [one.dtype for one in found[len(bad) :]] == [np.dtype(dtype)] * len(good)


def test_why_it_is_none_is_said() -> None:
    for told, words in ((2, "int64 is not bool"), ("x", "a string is not bool")):
        ds = ad.Dataset.from_generator(lambda told=told: [told], output_signature=ad.TensorSpec((), bool))
        with pytest.raises(ad.StructureError, match=rf"expected .*bool\), got {told!r} \({words}\)"):
            list(ds)


def test_element_spec_is_the_signature() -> None:
    spec = ad.TensorSpec((None, 3), np.float32)
    assert ad.Dataset.from_generator(lambda: iter(()), output_signature=spec).element_spec == spec


def test_element_spec_of_the_first_element() -> None:
    assert ad.Dataset.from_generator(lambda: iter([1])).element_spec == ad.TensorSpec((), np.int64)


def test_older_arguments_of_tf_data() -> None:
    ds = ad.Dataset.from_generator(
        lambda: iter([(1, [2.0])]), output_types=(np.int32, np.float32), output_shapes=((), (1,))
    )
    ((number, array),) = ds
    assert (number.dtype, array.dtype, array.shape) == (np.int32, np.float32, (1,))


@pytest.mark.parametrize("wrong", [3, iter([]), [1, 2], None])
def test_a_generator_must_be_callable(wrong: Any) -> None:
    with pytest.raises((ad.PlanError, TypeError), match="function"):
        ad.Dataset.from_generator(wrong)


def test_what_cannot_be_iterated_is_refused_where_it_is_given() -> None:
    with pytest.raises((ad.PlanError, TypeError)):
        ad.Dataset.from_iterable(3)  # type: ignore[arg-type]
    with pytest.raises((ad.PlanError, TypeError)):
        ad.Dataset.from_async_iterable([1])  # type: ignore[arg-type]


def test_what_is_not_iterable_that_a_generator_returns_fails_in_place() -> None:
    assert results(ad.Dataset.from_generator(lambda: 3)) == [Failed("TypeError")]


def test_an_iterator_read_twice_says_so() -> None:
    ds = ad.Dataset.from_iterable(iter([1, 2]))
    assert list(ds) == [1, 2]
    with pytest.raises(ad.PlanError, match="only once"):
        list(ds)


def test_a_generator_does_not_run_on_the_consumers_thread() -> None:
    ds = ad.Dataset.from_generator(lambda: (threading.get_ident() for _ in range(3)))
    assert threading.get_ident() not in set(ds)


def test_an_async_iterable_runs_on_the_consumers_loop() -> None:
    class Loops:
        async def __aiter__(self) -> AsyncIterator[Any]:
            yield asyncio.get_running_loop()

    async def body() -> bool:
        (found,) = await collect(ad.Dataset.from_async_iterable(Loops()))
        return found is asyncio.get_running_loop()

    assert asyncio.run(body())


def test_a_queue_of_the_consumers_loop_feeds_a_pipeline() -> None:
    class Requests:
        def __init__(self) -> None:
            self.queue: asyncio.Queue[int | None] = asyncio.Queue()

        async def __aiter__(self) -> AsyncIterator[int]:
            while (request := await self.queue.get()) is not None:
                yield request

    async def body() -> list[int]:
        requests = Requests()
        found: list[int] = []
        async with ad.Dataset.from_async_iterable(requests).map(lambda x: x * 2).iterate() as elements:
            for number in range(3):
                requests.queue.put_nowait(number)
                found.append(await anext(elements))
            requests.queue.put_nowait(None)
            with pytest.raises(StopAsyncIteration):
                await anext(elements)
        return found

    assert asyncio.run(body()) == [0, 2, 4]


def test_cardinality() -> None:
    assert ad.Dataset.from_generator(lambda: iter([1])).cardinality() == ad.UNKNOWN_CARDINALITY
    assert ad.Dataset.from_async_iterable(Stream(1)).cardinality() == ad.UNKNOWN_CARDINALITY


@pytest.mark.parametrize("ending", ["end", "failure"])
def test_quick_items_come_in_groups_and_none_waits_for_the_next(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other side lets go of the interpreter lock after each item, so that the engine could be woken for each.

    What counts as quick is quick enough for a machine whose cores others have too.
    """
    monkeypatch.setattr(iterator_bridge, "QUICK", 1.0)
    monkeypatch.setattr(iterator_bridge, "INLINE_GROUP", 0.25)
    woken: list[LoopSignal] = []
    notify = LoopSignal.notify
    monkeypatch.setattr(LoopSignal, "notify", lambda self: [woken.append(self), notify(self)])
    seen = threading.Semaphore(0)

    def bursts() -> Iterator[int]:
        for number in range(2000):
            os.sched_yield()
            yield number
            if number % 400 == 399:
                assert seen.acquire(timeout=120)  # the consumer has all that came so far
        if ending == "failure":
            raise Boom(2000)

    found: list[int] = []
    elements = iter(ad.Dataset.from_generator(bursts))
    with suppress(StopIteration, Boom):
        while True:
            found.append(next(elements))
            if found[-1] % 400 == 399:
                seen.release()
    assert found == list(range(2000))
    assert len(woken) < 1500


@pytest.mark.parametrize("debug", [False, True], ids=["plain", "debug"])
def test_quick_items_of_the_consumers_loop_come_in_groups_and_none_waits_for_the_next(debug: bool) -> None:
    """The engine's timer for a group is on its own loop: the consumer's may sleep until it has what came so far."""

    class Bursts:
        def __init__(self) -> None:
            self.seen = asyncio.Event()

        async def __aiter__(self) -> AsyncIterator[int]:
            for number in range(2000):
                yield number
                if number % 100 == 99:
                    await asyncio.wait_for(self.seen.wait(), 120)
                    self.seen.clear()

    async def body() -> list[int]:
        bursts, found = Bursts(), []
        async with ad.Dataset.from_async_iterable(bursts).map(lambda x: x * 2).iterate() as elements:
            async for element in elements:
                found.append(element)
                if element % 200 == 198:
                    bursts.seen.set()
        return found

    assert asyncio.run(body(), debug=debug) == list(range(0, 4000, 2))


async def test_groups_are_timed_on_the_engines_loop() -> None:
    """Not on that of the iterator: here it does not run, and one of two items has come."""
    elsewhere = asyncio.new_event_loop()
    scope: Any = SimpleNamespace(loop=asyncio.get_running_loop())
    bridge = iterator_bridge.LoopBridge(scope, elsewhere, Mock(), 0)
    bridge.ready.append("one")  # type: ignore[attr-defined]
    bridge.patience = 0.01
    try:
        await asyncio.wait_for(bridge.arrival(2), 60)
        assert len(bridge.ready) == 1  # so it has not waited for the second
    finally:
        elsewhere.close()


class Odd(BaseException):
    """An exception that is no `Exception`."""


@pytest.mark.parametrize("error", [GeneratorExit, Odd, asyncio.CancelledError])
@pytest.mark.parametrize("placement", ["thread", "current"])
def test_an_async_iterable_that_raises_no_exception_has_failed(error: Any, placement: Any) -> None:
    class Failing:
        async def __aiter__(self) -> AsyncIterator[int]:
            yield 0
            raise error

    ds = ad.Dataset.from_async_iterable(Failing()).with_options(ad.Options(placement=placement))
    with ds.iterate() as elements:
        assert next(elements) == 0
        with pytest.raises(error):
            next(elements)
