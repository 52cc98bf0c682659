"""What each part costs: a hop between stages, a map, a filter, a batch, the bridge to the consumer.

    python benchmarks/micro/costs.py [--quick] [--json FILE]

A part's cost is the time of a pipeline with it less the time of the same pipeline without it, per element (or per
block). `skip` swallows the elements at the end, so that only the rows on the bridge pay for the bridge. Mixtures,
batches cut anew, ragged ones, classes and keys are also run beside tf.data's, where TensorFlow is installed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtLeast, AtMost, Report, Row, alternate, parse_arguments, tensorflow

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
        Part("sample_from_datasets of 2, per element", swallowed(sampled(ad.Dataset, count, 2)), base, count),
        Part("sample_from_datasets of 100, per element", swallowed(sampled(ad.Dataset, count, 100)), base, count),
    )


def sampled(kind: Any, count: int, datasets: int) -> Any:
    """Return a mixture of ranges, ours or tf.data's."""
    return kind.sample_from_datasets([kind.range(count // datasets)] * datasets, seed=1)


def mixtures(arguments: Arguments, report: Report) -> None:
    """Add what a mixture costs beside tf.data's, and what a state of many datasets costs."""
    tf, count = tensorflow(), 2_000 if arguments.quick else 50_000
    sides = {"asyncdata": swallowed(sampled(ad.Dataset, count, 2))}
    if tf is not None:
        theirs = sampled(tf.data.Dataset, count, 2).skip(EVERYTHING)
        sides["tf.data"] = lambda: lambda: consume(theirs)
    samples = alternate(sides, arguments.rounds(7))
    ours, other = samples["asyncdata"].median, samples["tf.data"].median if tf is not None else None
    reference = None if other is None else other / count * 1e6
    raw = {name: runs.seconds for name, runs in samples.items()}
    name = "sample_from_datasets of 2, the whole pipeline"
    report.add(Row(name, ours / count * 1e6, "us", "tf.data", reference, AtLeast(5), raw))
    times = sorted(state_times(200 if arguments.quick else 2_000))
    median = times[len(times) // 2] * 1e6
    report.add(Row("state of 10,000 datasets, each 32 elements", median, "us", "bar", 100, AtMost(1)))


def classes(arguments: Arguments, report: Report) -> None:
    """Add what batches cut anew, ragged ones, classes and keys cost beside tf.data's, whole pipelines of each."""
    tf, count = tensorflow(), 1_000 if arguments.quick else 10_000
    labels = np.random.default_rng(1).choice(3, count, p=[0.4, 0.35, 0.25]).astype(np.int32)
    lengths = np.random.default_rng(2).integers(0, 50, count)
    for name, build, units in (
        ("batch(64), rebatch(48), per row", lambda kind: kind.range(count).batch(64).rebatch(48), count),
        ("rejection_resample, estimated", lambda kind: resampled(kind, labels), count),
        ("group_by_reducer of 10 keys", lambda kind: reduced(kind, count), count),
        ("map(range), ragged_batch(64), per element", lambda kind: ragged(kind, lengths), count),
    ):
        kinds = {"asyncdata": ad.Dataset, **({} if tf is None else {"tf.data": tf.data.Dataset})}
        samples = alternate({side: skipping(build(kind)) for side, kind in kinds.items()}, arguments.rounds(5))
        other = samples["tf.data"].median / units * 1e6 if tf is not None else None
        raw = {side: runs.seconds for side, runs in samples.items()}
        ours = samples["asyncdata"].median / units * 1e6
        report.add(Row(f"{name}, the whole pipeline", ours, "us", "tf.data", other, AtLeast(1), raw))


def skipping(dataset: Any) -> Prepare:
    """Run a dataset of either kind, giving nothing to the consumer."""
    skipped = dataset.skip(EVERYTHING)
    return lambda: lambda: consume(skipped)


def resampled(kind: Any, labels: Any) -> Any:
    """Return classes in equal shares, whose own are not known."""
    return kind.from_tensor_slices(labels).rejection_resample(lambda label: label, [1 / 3] * 3, seed=1)


def reduced(kind: Any, count: int) -> Any:
    """Return sums by key."""
    if kind is ad.Dataset:
        return kind.range(count).group_by_reducer(last_digit, ad.Reducer(lambda _: 0, add, same))
    tf = tensorflow()
    reducer = tf.data.experimental.Reducer(lambda _: tf.constant(0, tf.int64), add, same)
    return kind.range(count).apply(tf.data.experimental.group_by_reducer(last_digit, reducer))


def ragged(kind: Any, lengths: Any) -> Any:
    """Return batches of ranges of different lengths."""
    make = np.arange if kind is ad.Dataset else tensorflow().range
    return kind.from_tensor_slices(lengths).map(make).ragged_batch(64)


def last_digit(number: Any) -> Any:
    return number % 10


def add(total: Any, number: Any) -> Any:
    return total + number


def same(total: Any) -> Any:
    return total


def state_times(states: int) -> list[float]:
    """Return the seconds of each of many states of a mixture of 10,000 datasets, one after each batch."""
    datasets = [ad.Dataset.counter(number) for number in range(10_000)]
    mixture = ad.Dataset.sample_from_datasets(datasets, seed=1).batch(32)
    found: list[float] = []
    with mixture.with_options(ad.Options(placement="current")).iterate() as batches:
        next(batches)
        batches.state_dict()
        for _ in range(states):
            next(batches)
            begin = time.perf_counter()
            batches.state_dict()
            found.append(time.perf_counter() - begin)
    return found


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
    count = 20_000 if arguments.quick else 1_000_000
    for part in (*stage_parts(count), *picture_parts(3 if arguments.quick else 40), *bridge_parts(count)):
        measure(part, arguments, report)
    mixtures(arguments, report)
    classes(arguments, report)
    report.finish(arguments.json)


if __name__ == "__main__":
    main()
