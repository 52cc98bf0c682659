"""Functions that a step calls in one pass stay apart for a reader: each has its own time, wherever they are called."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.executors.function_times import FunctionTimes
from asyncdata.observe.plan_picture import boxes_of, plan_picture
from asyncdata.statistics.statistics import Statistics
from asyncdata.testing import virtual_time
from asyncdata.transforms.map import Map

Pixels: TypeAlias = "np.ndarray[Any, Any]"
Dataset: TypeAlias = "ad.Dataset[Any]"

HUNDRED = ad.Dataset.range(100)
SVG = "{http://www.w3.org/2000/svg}"


def load(x: int) -> int:
    return x + sum(range(30_000)) * 0


def augment(x: int) -> int:
    return x + 1


def is_small(x: int) -> bool:
    return x < 1000


def image(x: int) -> Pixels:
    load(x)
    return np.full(40_000, x, np.uint8)


def flip(pixels: Pixels) -> Pixels:
    return pixels[::-1]


async def fetch(x: int) -> int:
    await asyncio.sleep(0.03)
    return x


async def decode(x: int) -> int:
    await asyncio.sleep(0.01)
    return x


def in_processes(ds: Dataset) -> Dataset:
    """A map in worker processes whose functions are called in one pass, as AUTOTUNE may choose."""
    first, second = ds.map(load, num_parallel_calls=2, executor="process").plan, ds.map(augment).plan
    assert isinstance(first, Map)
    assert isinstance(second, Map)
    return ad.Dataset(replace(first, functions=first.functions + second.functions))


def in_threads(ds: Dataset) -> Dataset:
    return ds.map(load, num_parallel_calls=2).map(augment, pure=True)


def inline(ds: Dataset) -> Dataset:
    return ds.map(load).map(augment)


WAYS = {"inline": inline, "thread": in_threads, "process": in_processes}
"""Where the functions are called, and pipelines that do so."""


def names(stats: Statistics, step: int = 1) -> list[str]:
    return [one.name for one in stats.steps[step].functions]


@pytest.mark.parametrize("where", WAYS)
def test_each_function_has_its_own_time(where: str) -> None:
    with WAYS[where](ad.Dataset.range(200)).iterate() as elements:
        assert list(elements) == [*range(1, 201)]
        stats = elements.stats()
    step = stats.steps[1]
    assert step.where == where
    assert names(stats) == ["map(load)", "map(augment)"]
    assert step.slowest is not None
    assert step.slowest.name == "map(load)"
    assert sum([one.seconds for one in step.functions]) == pytest.approx(step.own_seconds + step.worker_seconds)
    assert step.function_share(step.functions[0]) > 0.8


def test_functions_of_a_pipeline_in_a_process_of_its_own_are_told_too() -> None:
    with inline(ad.Dataset.range(200)).with_options(ad.Options(placement="process")).iterate() as elements:
        assert len(list(elements)) == 200
        assert names(elements.stats()) == ["map(load)", "map(augment)"]
        assert elements.bottleneck().function in {"map(load)", ""}


def test_times_of_functions_that_are_awaited_are_those_between_their_awaits() -> None:
    async def main() -> None:
        ds = ad.Dataset.range(20).map(fetch, num_parallel_calls=4).map(decode, pure=True)
        async with ds.with_options(ad.Options(placement="current")).iterate() as elements:
            assert [x async for x in elements] == [*range(20)]
            step = elements.stats().steps[1]
        assert [one.name for one in step.functions] == ["map(fetch)", "map(decode)"]
        assert step.function_share(step.functions[0]) == pytest.approx(0.75, abs=0.05)

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        runner.run(main())


def test_filters_and_large_elements_are_measured_too() -> None:
    ds = ad.Dataset.range(64)
    for each, found in (
        (ds.map(load).filter(is_small), ["map(load)", "filter(is_small)"]),
        (ds.map(image, num_parallel_calls=2).map(flip, pure=True).batch(8), ["map(image)", "map(flip)"]),
    ):
        with each.iterate() as elements:
            list(elements)
            stats = elements.stats()
        assert names(stats) == found
        assert stats.steps[1].functions[0] == stats.steps[1].slowest


def test_a_step_that_calls_one_function_has_none_of_them() -> None:
    with ad.Dataset.range(20).map(load).batch(2).iterate() as elements:
        list(elements)
        assert [step.functions for step in elements.stats().steps] == [()] * 4


def test_functions_stand_below_their_step_in_tables_pictures_and_traces(tmp_path: Path) -> None:
    with ad.trace() as trace, ad.Dataset.range(200).map(load).map(augment).batch(4).iterate() as batches:
        list(batches)
        stats = batches.stats()
        limit = batches.bottleneck()
    steps = [row[0] for row in stats.rows]
    assert steps[2:5] == ["map(load → augment)", "├ map(load)", "└ map(augment)"]
    assert all(len(row) == len(stats.rows[0]) for row in stats.rows)
    found = ET.fromstring(plan_picture([("", boxes_of(stats))])).iter(f"{SVG}g")
    drawn = [(group.get("class"), group.findtext(f"{SVG}title")) for group in found]
    assert drawn[1:4] == [("step", "map(load → augment)"), ("function", "map(load)"), ("function", "map(augment)")]
    rows = {bar.row for bar in trace.bars()}
    assert {"map(load → augment)", "map(load)", "map(augment)"} <= rows
    trace.plot(tmp_path / "timeline.svg")
    assert "a function of a step" in (tmp_path / "timeline.svg").read_text()
    assert (limit.step, limit.function) == ("map(load → augment)", "map(load)")
    assert "% of that in map(load))" in str(limit)
    told = json.loads(json.dumps(stats.to_dict()))
    assert [one["name"] for one in told["steps"][1]["functions"]] == ["map(load)", "map(augment)"]


def test_a_trace_has_the_functions_of_worker_processes_within_their_groups() -> None:
    with ad.trace() as trace:
        list(in_processes(ad.Dataset.range(200)))
    groups = [bar for bar in trace.bars() if bar.kind == "worker"]
    inside = [bar for bar in trace.bars() if bar.kind == "function"]
    assert {bar.row for bar in inside} == {"map(load)", "map(augment)"}
    for bar in inside:
        assert any(one.begin - 1e-6 <= bar.begin <= bar.end <= one.end + 1e-6 for one in groups)


def test_passes_that_are_not_measured_count_as_those_that_are() -> None:
    times = FunctionTimes(("a", "b"))
    measured = 0
    for _ in range(1000):
        if times.is_due(2):
            times.add(2, [2e-6, 1e-6])
            measured += 1
    assert measured < 20
    total = {key.name: seconds for key, seconds in times.seconds.items()}
    assert total["a"] == pytest.approx(1000 * 2e-6, rel=0.2)
    assert total["b"] == pytest.approx(total["a"] / 2)


@pytest.mark.parametrize(
    ("ds", "samples"),
    [
        (HUNDRED, 100),
        (HUNDRED.batch(8), 100),
        (HUNDRED.batch(8).take(3), 24),
        (HUNDRED.batch(5).map(abs).batch(4), 100),
        (HUNDRED.padded_batch(8).prefetch(2), 100),
        (HUNDRED.batch(8).unbatch(), 100),
        (HUNDRED.batch(8).rebatch(5), 100),
        (HUNDRED.batch(8).rebatch(20), 100),
        (HUNDRED.batch(10).flat_map(ad.Dataset.from_tensor_slices).batch(20), 100),
    ],
    ids=lambda value: str(value.plan.label()) if isinstance(value, ad.Dataset) else "",
)
def test_samples_are_the_members_of_batches(ds: Dataset, samples: int) -> None:
    with ds.iterate() as elements:
        count = len(list(elements))
        stats = elements.stats()
    assert (stats.elements, stats.samples) == (count, samples)
    assert stats.sample_pace == pytest.approx(samples / stats.seconds)
    assert ("samples a second" in stats.summary) == (samples != count)
    assert stats.to_dict()["samples"] == samples
