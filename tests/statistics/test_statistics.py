"""What an iterator tells of itself: exact counts, times that add up, the same wherever the pipeline runs."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.runtime.meter import COST_BINS, cost_bin, seconds_of_bin
from asyncdata.statistics.statistics import Statistics, StepStatistics
from asyncdata.testing import virtual_time

PLACEMENTS = ("thread", "current", "process")
in_each_placement = pytest.mark.parametrize("placement", PLACEMENTS)


def odd(x: int) -> bool:
    return x % 2 == 1


def fails_on_seven(x: int) -> int:
    if x == 7:
        raise ValueError(x)
    return x


def read(elements: ad.DatasetIterator[Any]) -> list[Any]:
    """What comes out, errors left out."""
    found: list[Any] = []
    while True:
        try:
            found.append(next(elements))
        except StopIteration:
            return found
        except ValueError:
            continue


def steps_of(elements: ad.DatasetIterator[Any]) -> dict[str, StepStatistics]:
    """The steps by the names of their transformations."""
    return {step.step.partition("(")[0]: step for step in elements.stats().steps}


@in_each_placement
def test_each_element_is_counted_once_in_each_step(placement: Any) -> None:
    ds = ad.Dataset.range(1000).filter(odd).map(fails_on_seven, num_parallel_calls=2).batch(10).unbatch().repeat(2)
    with ds.with_options(ad.Options(placement=placement)).iterate() as elements:
        assert len(read(elements)) == 2 * 499
        stats = elements.stats()
    found = {step.step.partition("(")[0]: (step.items, step.failed) for step in stats.steps}
    assert found == {
        "range": (2000, 0),
        "filter": (1000, 0),
        "map": (1000, 2),
        "batch": (2 * 51, 0),
        "unbatch": (1000, 0),
        "repeat": (1000, 0),
        "prefetch": (1000, 0),
    }
    assert stats.elements == 1000
    assert [step.inputs for step in stats.steps] == [(), *[(place,) for place in range(6)]]
    assert stats.placement == placement


@in_each_placement
def test_times_are_told_and_no_more_than_have_passed(placement: Any) -> None:
    ds = ad.Dataset.range(2000).map(fails_on_seven, num_parallel_calls=2).map(abs).batch(50)
    begin = time.perf_counter()
    with ds.with_options(ad.Options(placement=placement)).iterate() as batches:
        read(batches)
        stats = batches.stats()
    passed = time.perf_counter() - begin
    assert 0 < stats.first_seconds <= stats.waiting_seconds <= stats.seconds <= passed
    assert 0 < stats.engine_seconds <= passed
    assert sum(step.own_seconds for step in stats.steps) <= stats.engine_seconds
    for step in stats.steps[1:-1]:
        assert 0 < step.p50 <= step.p99 < passed
        assert step.own_seconds > 0 or step.worker_seconds > 0
    assert stats.pace == stats.elements / stats.seconds


def test_numbers_stay_as_they_are_when_the_iterator_is_closed() -> None:
    elements = ad.Dataset.range(100).batch(10).iterate()
    read(elements)
    elements.close()
    first, second = elements.stats(), elements.stats()
    assert first.elements == second.elements == 10
    assert first.seconds == second.seconds
    assert first.steps == second.steps


def test_an_iterator_that_has_not_begun_tells_so() -> None:
    with ad.Dataset.range(3).batch(2).iterate() as batches:
        stats = batches.stats()
        assert (stats.elements, stats.seconds, stats.pace, stats.waiting) == (0, 0.0, 0.0, 0.0)
        assert [(step.step, step.items) for step in stats.steps] == [
            ("range(3)", 0),
            ("batch(2)", 0),
            ("prefetch(AUTOTUNE)", 0),
        ]
        assert str(stats).startswith("not begun")


def test_statistics_are_of_what_was_read_since_a_state() -> None:
    ds = ad.Dataset.range(100)
    with ds.iterate() as numbers:
        next(numbers)
        state = numbers.state_dict()
    with ds.iterate(state=state) as numbers:
        assert len([*numbers]) == 99
        assert numbers.stats().elements == 99


@pytest.mark.parametrize("placement", ["thread", "current", "process"])
def test_a_source_that_is_read_by_number_counts_what_it_gives(placement: Any) -> None:
    """For a shuffle of everything, and again after a resume."""
    ds = ad.Dataset.from_list([*range(100)]).map(str).shuffle(seed=0).with_options(ad.Options(placement=placement))
    with ds.iterate() as texts:
        taken = [next(texts) for _ in range(40)]
        state = texts.state_dict()
        taken += texts
        assert [step.items for step in texts.stats().steps][:3] == [100] * 3
    with ds.iterate(state=state) as texts:
        assert list(texts) == taken[40:]
        assert [step.items for step in texts.stats().steps][:3] == [60] * 3


def test_another_thread_may_ask_while_one_reads() -> None:
    with ad.Dataset.range(200_000).map(abs).batch(10).iterate() as batches:
        reader = threading.Thread(target=read, args=(batches,))
        reader.start()
        seen = [batches.stats().elements]
        while reader.is_alive():
            seen.append(batches.stats().elements)
        reader.join()
        assert seen == sorted(seen)
        assert batches.stats().elements == 20_000


async def waits(x: int) -> int:
    await asyncio.sleep(100)
    return x


def test_waiting_is_told_by_the_second() -> None:
    """In virtual time: a consumer that takes 50 s, and calls of 100 s by two at once."""

    async def consume() -> Statistics:
        ds = ad.Dataset.range(80).map(waits, num_parallel_calls=2).batch(4)
        async with ds.with_options(
            ad.Options(placement="current", disabled_rules=("map_and_batch_fusion",))
        ).iterate() as batches:
            async for _ in batches:
                await asyncio.sleep(50)
            return batches.stats()

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        stats = runner.run(consume())
    source, step, batch, _ = stats.steps
    assert stats.seconds == pytest.approx(20 * 200 + 50, rel=0.05)
    assert stats.first_seconds == pytest.approx(200, rel=0.05)
    assert stats.waiting == pytest.approx(0.75, abs=0.03)
    assert step.workers == 2
    assert step.worker_seconds == pytest.approx(80 * 100, rel=0.01)
    assert 80 < step.p50 < 120
    assert batch.input_seconds == step.output_seconds == pytest.approx(4000, rel=0.05)
    assert source.output_seconds < 40


def test_a_full_buffer_waits_for_its_reader() -> None:
    async def consume() -> Statistics:
        async with ad.Dataset.range(20).prefetch(2).with_options(ad.Options(placement="current")).iterate() as numbers:
            async for _ in numbers:
                await asyncio.sleep(100)
            return numbers.stats()

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        stats = runner.run(consume())
    assert stats.steps[-1].room_seconds == pytest.approx(1700, abs=110)
    assert stats.waiting < 0.01
    assert stats.pace == pytest.approx(0.01, rel=0.05)


def test_work_inside_a_step_is_the_steps() -> None:
    def inner(x: int) -> ad.Dataset[int]:
        return ad.Dataset.range(5).map(lambda y: sum(range(2000)) + x + y)

    with ad.Dataset.range(50).flat_map(inner).iterate() as numbers:
        assert len([*numbers]) == 250
        step = steps_of(numbers)["flat_map"]
    assert step.items == 250
    assert step.own_seconds > 250 * 5e-6


def test_machines_read_a_dict_and_notebooks_a_table() -> None:
    with ad.Dataset.range(50).map(lambda x: x, num_parallel_calls=2).batch(5).iterate() as batches:
        read(batches)
        stats = batches.stats()
    told = json.loads(json.dumps(stats.to_dict()))
    assert told["elements"] == 10
    assert told["steps"][1]["items"] == 50
    assert told["steps"][1]["inputs"] == [0]
    assert "<td>batch(5)</td><td>10</td>" in stats._repr_html_()
    assert "&lt;lambda&gt;" in stats._repr_html_()
    lines = str(stats).splitlines()
    assert lines[0].startswith("10 elements in ")
    assert lines[2].split()[0] == "step"
    assert lines[3].split()[:2] == ["range(50)", "50"]


@pytest.mark.parametrize("seconds", [1e-9, 3.3e-7, 1e-5, 0.0021, 0.4, 1.0, 17.0, 3600.0])
def test_bins_of_costs_are_a_fifth_wide(seconds: float) -> None:
    place = cost_bin(seconds)
    assert -COST_BINS <= place < COST_BINS
    assert seconds_of_bin(place % COST_BINS) == pytest.approx(seconds, rel=0.1)


async def fails_at_first(x: int) -> int:
    FAILED[x] = FAILED.get(x, 0) + 1
    if FAILED[x] <= x % 3:
        raise ConnectionResetError
    return x


def fails_at_first_in_a_thread(x: int) -> int:
    FAILED[x] = FAILED.get(x, 0) + 1
    if FAILED[x] <= x % 3:
        raise ConnectionResetError
    return x


FAILED: dict[int, int] = {}


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (fails_at_first, {}),
        (fails_at_first, {"num_parallel_calls": 3}),
        (fails_at_first_in_a_thread, {}),
        (fails_at_first_in_a_thread, {"num_parallel_calls": ad.AUTOTUNE}),
        pytest.param(fails_at_first_in_a_thread, {"executor": "process"}, marks=pytest.mark.slow),
    ],
)
def test_calls_that_are_made_again_are_counted(function: Any, options: dict[str, Any]) -> None:
    FAILED.clear()
    again = ad.with_retries(function, backoff=0)
    with ad.Dataset.range(30).map(abs).map(again, **options).iterate() as elements:
        assert len(read(elements)) == 30
        counted = [step.retries for step in elements.stats().steps]
    assert sum(counted) == counted[-2] == 30


@in_each_placement
def test_what_elements_occupy_is_told(placement: Any) -> None:
    rows = ad.Dataset.range(400).map(lambda x: np.zeros(1000)).batch(4)
    with rows.with_options(ad.Options(placement=placement)).iterate() as elements:
        assert len(read(elements)) == 100
        found = {step.step.partition("(")[0]: step.bytes for step in elements.stats().steps}
    assert found["map"] == pytest.approx(400 * 8000, rel=0.1)
    assert found["batch"] == pytest.approx(400 * 8000, rel=0.1)
    assert 0 < found["range"] < 400 * 100


@pytest.mark.parametrize("size", [100, 300_000])
@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_bytes_of_files_are_counted_as_they_lie_there(tmp_path: Path, size: int, compression: str | None) -> None:
    path = tmp_path / "records"
    with ad.TFRecordWriter(path, compression) as writer:
        for number in range(40):
            writer.write(bytes([number]) * size)
    with ad.Dataset.from_list([str(path)] * 2).interleave(ad.TFRecordDataset, num_parallel_calls=2).iterate() as found:
        assert sum(1 for _ in found) == 80
        steps = found.stats().steps
    read = [step.read_bytes for step in steps]
    assert read == [0, pytest.approx(2 * path.stat().st_size, rel=0.05), 0]


def test_files_that_are_in_memory_already_have_no_time_of_their_own(tmp_path: Path) -> None:
    """They are read while the step asks for them; that was shown as 917 ms."""
    paths = [tmp_path / f"{number}" for number in range(40)]
    for path in paths:
        path.write_bytes(b"some")
    with ad.Dataset.from_list(paths).map(ad.read_file, num_parallel_calls=4).iterate() as files:
        began = time.perf_counter()
        assert list(files) == [b"some"] * 40
        passed = time.perf_counter() - began
        step = steps_of(files)["map"]
    assert step.items == 40
    assert step.p50 is None or step.p50 < passed
