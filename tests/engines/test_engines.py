"""How a plain consumer waits for a pipeline, mostly one that runs on a loop of its own, in the same thread."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, closing
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.engines.base import StopSignal

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_a_wait_that_is_interrupted_as_it_ends_does_not_end_the_next() -> None:
    with closing(asyncio.new_event_loop()) as loop:
        signal = StopSignal(loop)
        seen: list[str] = []

        def interrupt() -> None:
            signal.notify()
            raise KeyboardInterrupt

        def arrive() -> None:
            seen.append("arrived")
            signal.notify()

        loop.call_soon(interrupt)
        with pytest.raises(KeyboardInterrupt):
            signal.until(lambda: seen)
        signal.notify()  # nobody waits
        loop.call_soon(loop.call_soon, loop.call_soon, arrive)
        signal.until(lambda: seen)
        assert seen == ["arrived"]


def test_a_wait_goes_on_while_there_is_nothing_for_it() -> None:
    with closing(asyncio.new_event_loop()) as loop:
        signal = StopSignal(loop)
        seen: list[int] = []

        def arrive() -> None:
            seen.append(len(seen))
            signal.notify()
            loop.call_soon(arrive)

        loop.call_soon(arrive)
        signal.until(lambda: len(seen) >= 3)
        assert seen == [0, 1, 2]  # it is stopped as soon as there is
        signal.until(lambda: True)
        assert seen == [0, 1, 2]


@pytest.mark.parametrize("placement", ["thread", "current"])
def test_a_cancellation_by_a_users_function_ends_the_pipeline_and_not_its_consumer(placement: Any) -> None:
    """Where no element stands for it: here in a function of weights."""

    def weights(step: int) -> list[float]:
        if step == 1:
            raise asyncio.CancelledError
        return [0.5, 0.5]

    numbers = ad.Dataset.range(9)
    ds = ad.Dataset.sample_from_datasets([numbers, numbers], weights, seed=1)
    with pytest.raises((asyncio.CancelledError, ad.StageError)):
        list(ds.with_options(ad.Options(placement=placement)))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.12 added eager tasks")
@pytest.mark.parametrize("placement", ["thread", "current"])
async def test_tasks_of_the_consumers_loop_may_run_before_their_creation_returns(placement: Any) -> None:
    async def numbers() -> AsyncIterator[int]:
        for number in range(20):
            yield number

    async def doubled(number: int) -> int:
        if number % 3:
            await asyncio.sleep(0)
        return 2 * number

    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
    read = ad.Dataset.from_async_iterable(numbers).map(doubled, 4).prefetch(2)
    flat = ad.Dataset.range(20).interleave(lambda x: ad.Dataset.from_list([x]).map(doubled, 2), 1).prefetch(2)
    for ds in (read, flat):
        ds = ds.with_options(ad.Options(placement=placement))  # noqa: PLW2901
        assert [int(number) async for number in ds] == [2 * number for number in range(20)]
        async with aclosing(aiter(ds)) as elements:
            assert [int(await anext(elements)) for _ in range(3)] == [0, 2, 4]
