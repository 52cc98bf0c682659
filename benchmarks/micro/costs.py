"""What each part costs: a hop between stages, a map, a filter, a batch, the bridge to the consumer.

    python benchmarks/micro/costs.py [--quick] [--json FILE]

A part's cost is the time of a pipeline with it less the time of the same pipeline without it, per element (or per
block). `skip` swallows the elements at the end, so that only the rows on the bridge pay for the bridge. Whole pipelines
of every transformation, beside tf.data's, are in catalogue.py.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import Report, Row, alternate, parse_arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness import Arguments, Prepare

__all__ = ("main",)

AS_WRITTEN = ad.Options(optimize=False)
EVERYTHING = 1 << 40
PICTURE = np.zeros((224, 224, 3), np.uint8)


@dataclass(frozen=True)
class Part:
    """A pipeline with the part, the same without it, and how many units of work the part did."""

    name: str
    having: Prepare
    lacking: Prepare
    units: int
    unit: str = "us"


def swallowed(dataset: Any) -> Prepare:
    """Run the dataset on the engine, giving nothing to the consumer."""
    pipeline = dataset.skip(EVERYTHING).with_options(AS_WRITTEN)
    return lambda: lambda: consume(pipeline)


def consumed(dataset: Any) -> Prepare:
    """Run the dataset, giving every element to a plain `for`."""
    return lambda: lambda: consume(dataset)


def consumed_async(dataset: Any) -> Prepare:
    """Run the dataset, giving every element to an `async for`."""

    async def run() -> None:
        async for _ in dataset:
            pass

    return lambda: lambda: asyncio.run(run())


def consume(dataset: Any) -> None:
    for _ in dataset:
        pass


def nothing() -> Callable[[], None]:
    return lambda: None


def increment(value: int) -> int:
    return value + 1


def is_even(value: int) -> bool:
    return value % 2 == 0


async def increment_async(value: int) -> int:
    return value + 1


def stage_parts(count: int) -> tuple[Part, ...]:
    """Hops and transformations of small elements, all on the engine's side."""
    numbers, few = ad.Dataset.range(count), ad.Dataset.range(count // 50)
    base, few_base = swallowed(numbers), swallowed(few)
    workers = {"num_parallel_calls": 4}
    return (
        Part("hop, per element of large blocks", swallowed(numbers.prefetch(4096)), base, count),
        Part("hop, per block of one element", swallowed(few.prefetch(1)), few_base, count // 50),
        Part("map, inline", swallowed(numbers.map(increment)), base, count),
        Part("map, 4 threads", swallowed(few.map(increment, **workers)), few_base, count // 50),
        Part("map, coroutines, 4 at once", swallowed(few.map(increment_async, **workers)), few_base, count // 50),
        Part("map(batch=256)", swallowed(numbers.map(increment, batch=256)), base, count),
        Part("ignore_errors, within a budget", swallowed(numbers.ignore_errors(max_share=0.01)), base, count),
        Part("filter", swallowed(numbers.filter(is_even)), base, count),
        Part("shuffle(1000)", swallowed(numbers.shuffle(1000, seed=0)), base, count),
        Part("batch(256) of ints, per element", swallowed(numbers.batch(256)), base, count),
        Part("sample_from_datasets of 2, per element", swallowed(sampled(count, 2)), base, count),
        Part("sample_from_datasets of 100, per element", swallowed(sampled(count, 100)), base, count),
    )


def sampled(count: int, datasets: int) -> ad.Dataset[int]:
    """Return a mixture of ranges."""
    return ad.Dataset.sample_from_datasets([ad.Dataset.range(count // datasets)] * datasets, seed=1)


def picture_parts(batches: int) -> tuple[Part, ...]:
    """Batches of 64 pictures of 150 KB: the memory of a batch is reused, or kept by the consumer."""
    pictures = ad.Dataset.range(64 * batches).map(lambda _: PICTURE)
    batched = pictures.batch(64)
    base = swallowed(pictures)

    def keep() -> Callable[[], Any]:
        return lambda: list(batched)

    return (
        Part("batch(64) of 150 KB arrays, per batch", swallowed(batched), base, batches),
        Part("batch(64) of 150 KB arrays, all kept, per batch", keep, base, batches),
    )


def bridge_parts(count: int) -> tuple[Part, ...]:
    """Plain iteration, and a pipeline's start and stop."""
    numbers, one, few = ad.Dataset.range(count), ad.Dataset.range(1), ad.Dataset.range(count // 50)
    base = swallowed(numbers)
    return (
        Part("bridge, for, per element", consumed(numbers), base, count),
        Part("bridge, async for, per element", consumed_async(numbers), base, count),
        Part(
            "bridge, for, one element at a time",
            consumed(few.with_options(AS_WRITTEN)),
            swallowed(few),
            count // 50,
        ),
        Part("start and stop of a pipeline", consumed(one), nothing, 1),
    )


def measure(part: Part, arguments: Arguments, report: Report) -> None:
    """Run with and without the part by turns, and add the difference per unit."""
    samples = alternate({"having": part.having, "lacking": part.lacking}, arguments.rounds(7))
    cost = (samples["having"].median - samples["lacking"].median) / part.units * 1e6
    raw = {name: runs.seconds for name, runs in samples.items()}
    report.add(Row(part.name, cost, unit=part.unit, samples=raw))


def main() -> None:
    """Measure every part and print the table."""
    arguments = parse_arguments(__doc__ or "")
    report = Report("The cost of each part")
    count = 5_000 if arguments.quick else 1_000_000
    for part in (*stage_parts(count), *picture_parts(2 if arguments.quick else 40), *bridge_parts(count)):
        measure(part, arguments, report)
    report.finish(arguments.json)


if __name__ == "__main__":
    main()
