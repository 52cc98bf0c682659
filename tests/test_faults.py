"""What a user sees when something goes wrong, and that nothing is left behind within a second of it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import asyncdata as ad
from tests.endless import busy, hang
from tests.reference import Boom, Failed
from tests.running import WAYS, collect

pytestmark = pytest.mark.usefixtures("nothing_left")

Run = Callable[[Callable[[], Any]], Any]

PLACEMENTS = pytest.mark.parametrize("placement", ["thread", "current"])


# exceptions of user code


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("how", [{}, {"executor": "thread"}, {"num_parallel_calls": 3}], ids=str)
def test_an_exception_in_a_function_is_raised_in_its_place_and_iteration_goes_on(way: Any, how: dict[str, Any]) -> None:
    assert way(ad.Dataset.range(3).map(lambda x: 1 // (x - 1), **how)) == [-1, Failed("ZeroDivisionError"), 1]


def test_the_traceback_shows_the_users_line() -> None:
    def decode(x: int) -> float:
        return 1 / x

    with pytest.raises(ZeroDivisionError) as caught:
        list(ad.Dataset.range(1).map(decode, num_parallel_calls=2))
    assert caught.traceback[-1].name == "decode"
    assert caught.value.__notes__ == [f"in map(decode) at test_faults.py:{decode.__code__.co_firstlineno}, element 0"]


@PLACEMENTS
def test_an_exception_in_a_generator(placement: Any) -> None:
    def generate() -> Iterator[int]:
        yield 0
        raise Boom("generator")

    elements = iter(ad.Dataset.from_generator(generate).with_options(ad.Options(placement=placement)))
    assert next(elements) == 0
    with pytest.raises(Boom) as caught:
        next(elements)
    assert "from_generator(generate) at test_faults.py" in caught.value.__notes__[0]
    assert list(elements) == []


@PLACEMENTS
def test_an_exception_in_an_async_iterable(placement: Any, run: Run) -> None:
    class Stream:
        async def __aiter__(self) -> AsyncIterator[int]:
            yield 0
            raise Boom("stream")

    ds = ad.Dataset.from_async_iterable(Stream()).with_options(ad.Options(placement=placement))
    assert run(lambda: collect(ds)) == [0, Failed("Boom('stream')")]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("how", [{}, {"num_parallel_calls": 2}], ids=str)
def test_what_is_meant_for_the_interpreter_reaches_the_consumer(kind: Any, how: dict[str, Any]) -> None:
    def stop(x: int) -> int:
        if x == 1:
            raise kind("from a function")
        return x

    found: list[int] = []
    with pytest.raises(kind), ad.Dataset.range(3).map(stop, **how).iterate() as elements:
        found.extend(elements)
    assert found in ([0], [])


# misuse of the iterator


@PLACEMENTS
def test_two_tasks_that_read_one_iterator(placement: Any, run: Run) -> None:
    async def body() -> None:
        ds = ad.Dataset.range(1).map(hang).with_options(ad.Options(placement=placement))
        async with ds.iterate() as elements:
            first = asyncio.create_task(anext(elements))
            await asyncio.sleep(0)
            with pytest.raises(ad.ConcurrentUseError, match="two tasks or threads"):
                await anext(elements)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first

    run(body)


def test_two_threads_that_read_one_iterator() -> None:
    gate, started = threading.Event(), threading.Event()

    def generate() -> Iterator[int]:
        started.set()
        gate.wait(60)
        yield 0

    found: list[int] = []
    elements = iter(ad.Dataset.from_generator(generate))
    thread = threading.Thread(target=lambda: found.append(next(elements)))
    thread.start()
    assert started.wait(60)
    with pytest.raises(ad.ConcurrentUseError, match="two tasks or threads"):
        next(elements)
    gate.set()
    thread.join(60)
    assert found == [0]
    assert list(elements) == []


@PLACEMENTS
def test_closing_twice(placement: Any, run: Run) -> None:
    elements = iter(busy(placement))
    next(elements)
    elements.close()
    elements.close()
    with pytest.raises(ad.ClosedError):
        next(elements)

    async def body() -> None:
        elements = aiter(busy(placement))
        await anext(elements)
        await elements.aclose()
        await elements.aclose()
        with pytest.raises(ad.ClosedError):
            await anext(elements)

    run(body)


@PLACEMENTS
@pytest.mark.parametrize("begun", [True, False])
def test_iterating_after_close(placement: Any, begun: bool, run: Run) -> None:
    elements = iter(busy(placement))
    if begun:
        next(elements)
    elements.close()
    with pytest.raises(ad.ClosedError, match="closed"):
        next(elements)

    async def body() -> None:
        elements = aiter(busy(placement))
        if begun:
            await anext(elements)
        await elements.aclose()
        with pytest.raises(ad.ClosedError, match="closed"):
            await anext(elements)

    run(body)


@PLACEMENTS
def test_the_end_is_the_end(placement: Any) -> None:
    elements = iter(ad.Dataset.range(1).with_options(ad.Options(placement=placement)))
    assert list(elements) == [0]
    assert list(elements) == []
    elements.close()


def test_close_wakes_a_thread_that_waits() -> None:
    started = threading.Event()
    caught: list[BaseException] = []

    async def begin(x: int) -> None:
        started.set()
        await asyncio.Event().wait()

    elements = iter(ad.Dataset.range(1).map(begin))

    def read() -> None:
        try:
            next(elements)
        except Exception as error:
            caught.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    assert started.wait(60)
    elements.close()
    thread.join(60)
    assert [type(error) for error in caught] == [ad.ClosedError]


@PLACEMENTS
def test_aclose_wakes_a_task_that_waits(placement: Any, run: Run) -> None:
    async def body() -> None:
        elements = aiter(ad.Dataset.range(1).map(hang).with_options(ad.Options(placement=placement)))
        waiting = asyncio.create_task(anext(elements))
        await asyncio.sleep(0.01)
        await elements.aclose()
        with pytest.raises(ad.ClosedError):
            await waiting

    run(body)


def test_a_pipeline_within_a_pipeline() -> None:
    """A function may iterate a dataset of its own."""
    ds = ad.Dataset.range(4).map(lambda x: sum(ad.Dataset.range(x)), num_parallel_calls=2)
    assert list(ds) == [0, 0, 1, 3]


# functions that block


@pytest.mark.parametrize("how", [{}, {"num_parallel_calls": 2}], ids=str)
def test_a_coroutine_function_that_blocks_the_loop_is_named(how: dict[str, Any], caplog: Any) -> None:
    async def decode(x: int) -> int:
        if x == 2:
            time.sleep(0.3)
        return x

    with caplog.at_level(logging.WARNING, logger="asyncdata"):
        assert list(ad.Dataset.range(4).map(decode, **how)) == [0, 1, 2, 3]
    (record,) = [record for record in caplog.records if "element 2:" in record.getMessage()]  # others if all stalls
    assert (record.name, record.levelname) == ("asyncdata", "WARNING")
    where = f"map(decode) at test_faults.py:{decode.__code__.co_firstlineno}"
    assert where in record.getMessage()


def test_a_plain_function_may_take_its_time(caplog: Any) -> None:
    ds = ad.Dataset.range(2).map(lambda x: time.sleep(0.15), num_parallel_calls=2)
    assert list(ds) == [None, None]
    assert caplog.records == []


def test_a_consumer_that_blocks_does_not_hold_the_pipeline() -> None:
    done = threading.Event()

    def last(x: int) -> int:
        if x == 5:
            done.set()
        return x

    with ad.Dataset.range(100).map(last).prefetch(10).iterate() as elements:
        next(elements)
        assert done.wait(60)


def test_a_pipeline_that_blocks_does_not_hold_the_consumers_loop(run: Run) -> None:
    async def body() -> None:
        gate = threading.Event()
        ds = ad.Dataset.range(1).map(lambda x: gate.wait(60))
        async with ds.iterate() as elements:
            first = asyncio.create_task(anext(elements))
            await asyncio.sleep(0.01)
            assert not first.done()
            gate.set()
            assert await first

    run(body)
