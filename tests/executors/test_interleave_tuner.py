"""How many inputs an interleave reads at once: inputs of every kind that are only told of, and some that are read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.executors import interleave_tuner
from asyncdata.executors.interleave_tuner import InterleaveTuner, ReadLimiter

Speed = Callable[[int], tuple[float, float]]
"""Elements in a second, and cores that compute, when so many inputs are read at once."""


def in_the_way(workers: int) -> tuple[float, float]:
    return 100_000 / (1 + 0.04 * workers), 1.1


def side_by_side(workers: int) -> tuple[float, float]:
    return 50_000 + 1000 * workers, 1.6


def waiting(workers: int) -> tuple[float, float]:
    return 200 * workers, 0.02 * workers


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=1.0, busy=1.0)
    told = SimpleNamespace(perf_counter=lambda: clock.now, process_time=lambda: clock.busy)
    monkeypatch.setattr(interleave_tuner, "time", told)
    return clock


def drive(known: InterleaveTuner, clock: Any, speed: Speed, seconds: float) -> list[int]:
    """Read for some seconds, and return how many were read at once, one after the other."""
    end, seen = clock.now + seconds, [known.choice.workers]
    while clock.now < end:
        rate, cores = speed(known.choice.workers)
        clock.now += 0.01
        clock.busy += 0.01 * cores
        known.read(round(0.01 * rate))
        if known.choice.workers != seen[-1]:
            seen.append(known.choice.workers)
    return seen


@pytest.mark.parametrize(("speed", "workers"), [(in_the_way, 1), (side_by_side, 16), (waiting, 16)])
def test_it_settles_on_what_is_fastest(clock: Any, speed: Speed, workers: int) -> None:
    known = InterleaveTuner(16)
    drive(known, clock, speed, 2)
    assert known.settled
    assert known.choice.workers == workers


def test_inputs_that_wait_are_always_read_all_at_once(clock: Any) -> None:
    known = InterleaveTuner(16)
    assert drive(known, clock, waiting, 100) == [16]
    assert known.choice.why == "they wait"


def test_it_adapts_when_inputs_begin_to_wait_and_when_they_end_to(clock: Any) -> None:
    known = InterleaveTuner(16)
    drive(known, clock, in_the_way, 5)
    drive(known, clock, waiting, 5)
    assert known.choice.workers == 16
    drive(known, clock, in_the_way, 5)
    assert known.choice.workers == 1


def test_it_does_not_go_to_and_fro_for_ever(clock: Any) -> None:
    """Not even where inputs wait and compute by turns: each time it takes twice as long to be tried anew."""
    known = InterleaveTuner(16)
    changes = sum(len(drive(known, clock, speed, 1.5)) for _ in range(400) for speed in (waiting, in_the_way)) - 800
    assert changes < 30


def test_no_more_are_let_in_than_are_to_be() -> None:
    async def enter_and_leave() -> list[int]:
        known = InterleaveTuner(2)
        gate, inside, most = ReadLimiter(known), 0, list[int]()

        async def read() -> None:
            nonlocal inside
            for _ in range(10):
                await gate.enter()
                inside += 1
                most.append(inside)
                await asyncio.sleep(0)
                inside -= 1
                gate.leave(1)

        await asyncio.gather(*[read() for _ in range(5)])
        known.try_workers(1, "fewer")
        inside_before = len(most)
        await asyncio.gather(*[read() for _ in range(5)])
        assert gate.limit.inside == 0
        return [max(most[:inside_before]), max(most[inside_before:])]

    assert asyncio.run(enter_and_leave()) == [2, 1]


def interleaved(calls: int | None, **how: Any) -> ad.Dataset:
    return ad.Dataset.range(40).interleave(
        lambda number: ad.Dataset.range(number % 7 * 30).map(lambda x: number * 1000 + x),
        cycle_length=4,
        num_parallel_calls=calls,
        **how,
    )


def test_elements_are_the_same_while_it_changes_its_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    def fickle(known: InterleaveTuner, count: int) -> None:
        known.try_workers(known.choice.workers % 4 + 1, "for a change")

    monkeypatch.setattr(InterleaveTuner, "read", fickle)
    assert list(interleaved(ad.AUTOTUNE)) == list(interleaved(None))


def test_what_was_found_is_told() -> None:
    with interleaved(ad.AUTOTUNE).iterate() as elements:
        list(elements)
        step, _ = elements.stats().tuned
    assert step["step"].startswith("interleave(<lambda>, cycle_length=4, num_parallel_calls=AUTOTUNE")
    assert (step["where"], step["workers"]) == ("task", 4)
    assert step["why"]
    assert step["buffer"] >= 2


@pytest.mark.parametrize("placement", ["thread", "process"])
def test_inputs_that_sleep_are_read_at_once(placement: Any) -> None:
    def sleeping(number: int) -> ad.Dataset:
        def numbers() -> Any:
            for place in range(20):
                time.sleep(0.01)  # long beside what it takes to hand an element over
                yield place

        return ad.Dataset.from_generator(numbers)

    ds = ad.Dataset.range(32).interleave(sleeping, cycle_length=16, num_parallel_calls=ad.AUTOTUNE)
    with ds.with_options(ad.Options(placement=placement)).iterate() as elements:
        assert len(list(elements)) == 32 * 20
        step, _ = elements.stats().tuned
    assert step["workers"] == 16


def test_it_can_be_turned_off_and_is_where_there_is_no_order() -> None:
    for options in (ad.Options(autotune=False), ad.Options(deterministic=False)):
        with interleaved(ad.AUTOTUNE).with_options(options).iterate() as elements:
            list(elements)
            assert [step["step"] for step in elements.stats().tuned] == ["prefetch(AUTOTUNE)"]
    with interleaved(4).iterate() as elements:
        list(elements)
        assert [step["step"] for step in elements.stats().tuned] == ["prefetch(AUTOTUNE)"]


def test_a_reader_that_is_let_in_and_told_to_end_at_once_lets_the_next_one_in() -> None:
    async def body() -> None:
        gate = ReadLimiter(InterleaveTuner(1))
        await gate.enter()
        second, third = asyncio.create_task(gate.enter()), asyncio.create_task(gate.enter())
        await asyncio.sleep(0)
        gate.leave(1)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        await third
        assert gate.limit.inside == 1

    asyncio.run(asyncio.wait_for(body(), 60))
