"""How a plain consumer waits for a pipeline, mostly one that runs on a loop of its own, in the same thread."""

from __future__ import annotations

import asyncio
from contextlib import closing
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
