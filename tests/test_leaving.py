"""Consumers that leave a pipeline before its end, in every way there is: nothing is left behind within a second."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.testing import leaves_nothing
from tests.endless import Endless, Forever, busy, hang
from tests.reference import Boom
from tests.running import read_plain

pytestmark = pytest.mark.usefixtures("nothing_left")

Run = Callable[[Callable[[], Any]], Any]

PLACEMENTS = pytest.mark.parametrize("placement", ["thread", "current"])


@PLACEMENTS
@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_plain_loop_that_breaks_off(placement: Any, count: int) -> None:
    for place, _ in enumerate(busy(placement)):
        if place == count:
            break


@PLACEMENTS
@pytest.mark.parametrize("count", [1, 3])
def test_async_generators_that_a_function_left_are_ended(placement: Any, count: int) -> None:
    """Also where the pipeline is left before its end."""
    ended: list[int] = []
    begun: list[AsyncGenerator[int, None]] = []

    async def numbers(number: int) -> AsyncGenerator[int, None]:
        try:
            yield number
        finally:
            await asyncio.sleep(0)
            ended.append(number)

    async def first_of(number: int) -> int:
        begun.append(numbers(number))
        return await anext(begun[-1])

    ds = ad.Dataset.range(3).map(first_of).with_options(ad.Options(placement=placement))
    with ds.iterate() as elements:
        assert [next(elements) for _ in range(count)] == [0, 1, 2][:count]
    assert len(begun) >= count
    assert sorted(ended) == [0, 1, 2][: len(begun)]


LEFT_WITHIN = {
    "repeat": lambda: ad.Dataset.range(2).repeat().take(5),
    "chosen": lambda: ad.Dataset.choose_from_datasets([ad.Dataset.range(5)] * 2, ad.Dataset.range(2).repeat()),
    "shuffle": lambda: ad.Dataset.range(50).shuffle(10, seed=1).repeat().take(5),
    "opened": lambda: ad.Dataset.range(2).flat_map(lambda _: ad.Dataset.range(2).repeat().take(5)),
}
"""Pipelines of which a step leaves its input before its end."""


@PLACEMENTS
@pytest.mark.parametrize("name", LEFT_WITHIN)
def test_no_task_is_left_by_a_step_that_leaves_its_input(
    name: str, placement: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(list(LEFT_WITHIN[name]().with_options(ad.Options(placement=placement)))) in (5, 10)
    gc.collect()
    assert not caplog.messages


@PLACEMENTS
def test_a_plain_consumer_that_raises(placement: Any) -> None:
    with pytest.raises(Boom):
        for _ in busy(placement):
            raise Boom("consumer")


@PLACEMENTS
@pytest.mark.parametrize("count", [0, 1, 5])
def test_an_async_loop_that_breaks_off(placement: Any, count: int, run: Run) -> None:
    async def body() -> None:
        place = 0
        async for _ in busy(placement):
            if place == count:
                break
            place += 1

    run(body)


@PLACEMENTS
def test_an_async_consumer_that_raises(placement: Any, run: Run) -> None:
    async def body() -> None:
        async for _ in busy(placement):
            raise Boom("consumer")

    with pytest.raises(Boom):
        run(body)


@PLACEMENTS
def test_an_async_consumer_that_raises_inside_the_context_manager(placement: Any, run: Run) -> None:
    async def body() -> None:
        async with busy(placement).iterate() as elements:
            async for _ in elements:
                raise Boom("consumer")

    with pytest.raises(Boom):
        run(body)


@PLACEMENTS
def test_a_consumer_that_is_cancelled_while_it_waits(placement: Any, run: Run) -> None:
    async def body() -> None:
        ds = ad.Dataset.range(10).map(hang, num_parallel_calls=2).with_options(ad.Options(placement=placement))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                async for _ in ds:
                    pass

    run(body)


@PLACEMENTS
def test_a_cancelled_next_loses_nothing(placement: Any, run: Run) -> None:
    async def body() -> list[int]:
        gates = [asyncio.Event(), asyncio.Event()]

        class Gated:
            async def __aiter__(self) -> AsyncIterator[int]:
                for number, gate in enumerate(gates):
                    await gate.wait()
                    yield number

        ds = ad.Dataset.from_async_iterable(Gated()).with_options(ad.Options(placement=placement))
        async with ds.iterate() as elements:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(elements), 0.01)
            for gate in gates:
                gate.set()
            return [element async for element in elements]

    assert run(body) == [0, 1]


@PLACEMENTS
def test_a_task_that_is_cancelled_between_two_elements(placement: Any, run: Run) -> None:
    async def consume() -> None:
        async for _ in busy(placement):
            await asyncio.Event().wait()

    async def body() -> None:
        task = asyncio.create_task(consume())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(body)


@PLACEMENTS
def test_an_iterator_that_is_collected(placement: Any) -> None:
    elements = iter(busy(placement))
    next(elements)
    del elements
    gc.collect()


@PLACEMENTS
def test_an_async_iterator_that_is_collected(placement: Any, run: Run) -> None:
    async def body() -> None:
        elements = aiter(busy(placement))
        await anext(elements)
        del elements
        gc.collect()

    run(body)


@PLACEMENTS
def test_an_iterator_of_which_one_element_is_read(placement: Any) -> None:
    ds = ad.Dataset.counter().with_options(ad.Options(placement=placement))
    found = iter(ds).peek(), next(iter(ds))  # not within `assert`, which pytest has keep what it sees
    assert found == (0, 0)
    gc.collect()


@PLACEMENTS
@pytest.mark.parametrize("read", [anext, ad.DatasetIterator.apeek])
def test_an_async_iterator_of_which_one_element_is_read(placement: Any, read: Any, run: Run) -> None:
    async def body() -> None:
        assert await read(aiter(ad.Dataset.counter().with_options(ad.Options(placement=placement)))) == 0
        gc.collect()

    run(body)


@PLACEMENTS
def test_an_iterator_that_is_collected_as_part_of_a_cycle(placement: Any) -> None:
    class Trainer:
        def __init__(self) -> None:
            self.elements = iter(busy(placement))
            self.me = self

    next(Trainer().elements)
    gc.collect()


@PLACEMENTS
def test_a_loop_that_ends_with_an_iterator_half_read(placement: Any) -> None:
    """Nobody closed it, and its loop is gone: neither a hang nor a warning."""
    kept: list[Any] = []

    async def body() -> None:
        kept.append(aiter(busy(placement)))
        await anext(kept[0])

    asyncio.run(body())
    kept.clear()


@PLACEMENTS
def test_closing_wakes_a_consumer_that_waits_in_another_thread(placement: Any) -> None:
    begun, raised = threading.Event(), []

    async def wait(x: Any) -> Any:
        begun.set()
        await hang(x)

    elements = iter(ad.Dataset.range(3).map(wait).with_options(ad.Options(placement=placement)))

    def read() -> None:
        with pytest.raises(ad.ClosedError) as caught:
            next(elements)
        raised.append(caught.type)

    consumer = threading.Thread(target=read)
    consumer.start()
    begun.wait()
    elements.close()
    consumer.join()
    assert raised == [ad.ClosedError]


@PLACEMENTS
def test_an_iterator_is_closed_on_another_loop_than_it_was_read_on(placement: Any) -> None:
    elements = iter(busy(placement))

    async def read() -> None:
        await anext(elements)

    asyncio.run(read())
    asyncio.run(elements.aclose())


def test_an_async_iterable_whose_loop_is_closed_is_an_error() -> None:
    ds = ad.Dataset.from_async_iterable(Endless()).take(1).repeat(2)
    elements = iter(ds.with_options(ad.Options(disabled_rules=("inject_prefetch",))))

    async def read() -> int:
        return await anext(elements)

    assert asyncio.run(read()) == 0
    with pytest.raises(ad.StageError, match="has been closed"):
        next(elements)


@PLACEMENTS
def test_an_iterator_that_was_never_started(placement: Any, run: Run) -> None:
    iter(busy(placement))
    iter(busy(placement)).close()

    async def body() -> None:
        async with busy(placement).iterate():
            pass
        await aiter(busy(placement)).aclose()

    run(body)


@PLACEMENTS
def test_generators_and_async_iterables_are_closed_when_left(placement: Any, run: Run) -> None:
    forever, endless = Forever(), Endless()
    ds = ad.Dataset.zip(ad.Dataset.from_generator(forever), ad.Dataset.from_async_iterable(endless))

    async def body() -> None:
        async with ds.with_options(ad.Options(placement=placement)).iterate() as elements:
            assert await anext(elements) == (0, 0)

    run(body)
    assert (forever.closed, endless.closed) == (1, 1)


@PLACEMENTS
def test_a_waiting_async_iterable_is_closed_when_left(placement: Any, run: Run) -> None:
    endless = Endless(pause=3600)

    async def body() -> None:
        ds = ad.Dataset.from_async_iterable(endless).with_options(ad.Options(placement=placement))
        async with ds.iterate() as elements:
            reading = asyncio.ensure_future(anext(elements))
            await endless.begun.wait()
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading

    run(body)
    assert endless.closed == 1


def test_an_async_iterable_under_a_plain_loop() -> None:
    endless = Endless()
    with ad.Dataset.from_async_iterable(endless).iterate() as elements:
        assert [next(elements), next(elements)] == [0, 1]
    assert endless.closed == 1


@PLACEMENTS
def test_a_generator_that_never_ends_behind_take(placement: Any) -> None:
    forever = Forever()
    ds = ad.Dataset.from_generator(forever).take(3).with_options(ad.Options(placement=placement))
    assert read_plain(ds) == [0, 1, 2]
    assert forever.closed == 1


def test_a_generator_that_refuses_to_be_closed() -> None:
    def generate() -> Iterator[int]:
        try:
            yield 0
            yield 1
        finally:
            raise Boom("closing")

    assert read_plain(ad.Dataset.from_generator(generate), 1) == [0]


@pytest.mark.parametrize("begun", [False, True])
def test_an_interrupt_while_the_engine_starts_leaves_nothing(begun: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if thread.name != "asyncdata-engine":
            start(thread)
            return
        if begun:
            start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), leaves_nothing():
        for _ in ad.Dataset.counter().map(lambda x: x, 2):
            pass
    monkeypatch.undo()
    assert list(ad.Dataset.range(3)) == [0, 1, 2]
