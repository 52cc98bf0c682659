"""The experiments of TensorFlow's guide "Better performance with the tf.data API", with the guide's own sleeps.

    python benchmarks/guide.py [--quick] [--json FILE]
    python benchmarks/guide.py --plot FILE

With `--plot` it measures nothing, and draws the guide's closing pair: what went on when, naive above optimised.

Each sleeping experiment is held against the least time its sleeps allow (limits.py says what may overlap) and, where
TensorFlow is installed, against tf.data, run by turns in the same process. A dataset is built before the clock starts.
The limit is compared with the best run, since the rest of the machine can only add to it; tf.data with the medians.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import limits
from artificial import Side, asyncdata_side, tensorflow_side
from harness import AtLeast, AtMost, Report, Row, alternate, parse_arguments, tensorflow

import asyncdata as ad

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness import Arguments, Prepare

__all__ = ("main",)

NEAR_LIMIT, AHEAD = AtMost(1.03), AtLeast(1)


@dataclass(frozen=True)
class Sleeping:
    """An experiment whose time is sleeping: it has a limit."""

    name: str
    limit: float
    run: Callable[[Side], Prepare]
    rounds: int = 7


@dataclass(frozen=True)
class Working:
    """An experiment whose time is the library's own work: it is held against tf.data alone."""

    name: str
    bar: AtLeast
    run: Callable[[Side], Prepare]
    rounds: int = 7


def trained(build: Callable[[Side], Any], epochs: int = limits.EPOCHS) -> Callable[[Side], Prepare]:
    """The guide's `benchmark`: epochs of a training step per sample."""

    def loop(dataset: Any) -> None:
        for _ in range(epochs):
            for _ in dataset:
                time.sleep(limits.STEP)

    return lambda side: lambda: timed_loop(loop, build(side))


def iterated(build: Callable[[Side], Any], epochs: int = 2) -> Callable[[Side], Prepare]:
    """The guide's `fast_benchmark`: epochs of nothing but iterating."""

    def loop(dataset: Any) -> None:
        for _ in range(epochs):
            for _ in dataset:
                pass

    return lambda side: lambda: timed_loop(loop, build(side))


def gathered(build: Callable[[Side], Any], epochs: int) -> Callable[[Side], Prepare]:
    """The guide's `timelined_benchmark`."""
    return lambda side: lambda: timed_loop(lambda dataset: side.train_on_timeline(dataset, epochs), build(side))


def timed_loop(loop: Callable[[Any], Any], dataset: Any) -> Callable[[], Any]:
    """The part of an experiment that is on the clock."""
    return lambda: loop(dataset)


def increment(value: Any) -> Any:
    """The guide's cheap function."""
    return value + 1


def sleeping_experiments() -> tuple[Sleeping, ...]:
    """The guide's experiments on `ArtificialDataset`."""

    def two_files(side: Side, **arguments: Any) -> Any:
        return side.dataset.range(2).interleave(lambda _: side.artificial(), **arguments)

    def mapped(side: Side, **arguments: Any) -> Any:
        return side.artificial().map(side.mapped, **arguments)

    return (
        Sleeping("naive, as written", limits.naive(), trained(lambda side: side.as_written(side.artificial()))),
        Sleeping("naive, as optimised", limits.prefetched(), trained(lambda side: side.artificial())),
        Sleeping("prefetch", limits.prefetched(), trained(lambda side: side.artificial().prefetch(side.autotune))),
        Sleeping("sequential interleave", limits.interleaved_sequentially(), trained(two_files)),
        Sleeping(
            "parallel interleave",
            limits.interleaved_in_parallel(),
            trained(lambda side: two_files(side, num_parallel_calls=side.autotune)),
        ),
        Sleeping("sequential map", limits.mapped_sequentially(), trained(mapped)),
        Sleeping(
            "parallel map",
            limits.mapped_in_parallel(),
            trained(lambda side: mapped(side, num_parallel_calls=side.autotune)),
        ),
        Sleeping("cache, 5 epochs", limits.cached(5), trained(lambda side: mapped(side).cache(), epochs=5)),
    )


def closing_experiments(samples: int, epochs: int) -> tuple[Sleeping, ...]:
    """The guide's closing comparison: 2 files of `samples` samples, in batches of as many."""
    return (
        Sleeping(
            "closing pair: naive, as written",
            limits.closing_without_prefetch(samples, epochs),
            gathered(lambda side: side.as_written(side.naive_pipeline(samples)), epochs),
            rounds=3,
        ),
        Sleeping(
            "closing pair: naive, as optimised",
            limits.closing_naive(samples, epochs),
            gathered(lambda side: side.naive_pipeline(samples), epochs),
            rounds=3,
        ),
        Sleeping(
            "closing pair: optimised",
            limits.closing_optimised(samples, epochs),
            gathered(lambda side: side.optimised_pipeline(samples), epochs),
            rounds=3,
        ),
    )


def working_experiments(iterations: int) -> tuple[Working, ...]:
    """The guide's experiments on `range(10000)`, and plain iteration."""

    def scalar(side: Side) -> Any:
        return side.dataset.range(10_000).map(increment).batch(256)

    def vectorised(side: Side) -> Any:
        return side.dataset.range(10_000).batch(256).map(increment)

    return (
        Working("scalar map, range(10000)", AtLeast(40), iterated(scalar)),
        Working("vectorised map, range(10000)", AtLeast(3), iterated(vectorised), rounds=15),
        Working(
            f"plain iteration, range({iterations})",
            AtLeast(50),
            iterated(lambda side: side.dataset.range(iterations), epochs=1),
            rounds=3,
        ),
    )


def measure(experiment: Sleeping | Working, sides: list[Side], arguments: Arguments, report: Report) -> None:
    """Run one experiment on each side by turns, and add its rows."""
    contenders = {side.name: experiment.run(side) for side in sides}
    samples = alternate(contenders, arguments.rounds(experiment.rounds))
    ours, best = samples["asyncdata"].median, samples["asyncdata"].best
    raw = {name: runs.seconds for name, runs in samples.items()}
    name = experiment.name
    if isinstance(experiment, Sleeping):
        report.add(Row(name, best, against="limit", reference=experiment.limit, bar=NEAR_LIMIT, samples=raw))
    elif "tf.data" not in samples:
        report.add(Row(name, ours, samples=raw))
    if "tf.data" in samples:
        bar = AHEAD if isinstance(experiment, Sleeping) else experiment.bar
        report.add(Row(name, ours, against="tf.data", reference=samples["tf.data"].median, bar=bar, samples=raw))


def plot(file: Path) -> None:
    """Draw two epochs of the closing pair, of 5 samples in each of 2 files."""
    side = asyncdata_side()
    naive, optimised = (
        traced(ds, epochs=2) for ds in (side.as_written(side.naive_pipeline(5)), side.optimised_pipeline(5))
    )
    optimised.plot(file, above=naive, title="optimised", title_above="naive")


def traced(dataset: Any, epochs: int) -> ad.Trace:
    """Train, and return the trace of that."""
    with ad.trace() as trace:
        for _ in range(epochs):
            for _ in dataset:
                with trace.step():
                    time.sleep(limits.STEP)
    return trace


def main() -> None:
    """Run every experiment and print the table."""
    parser = ArgumentParser(add_help=False)
    parser.add_argument("--plot", type=Path, metavar="FILE")
    asked, sys.argv[1:] = parser.parse_known_args()
    if asked.plot is not None:
        plot(asked.plot)
        return
    arguments = parse_arguments(__doc__ or "")
    report = Report("The experiments of the tf.data performance guide")
    tf = tensorflow()
    sides = [asyncdata_side(), *([] if tf is None else [tensorflow_side(tf)])]
    closing = closing_experiments(5, 2) if arguments.quick else closing_experiments(50, 5)
    working = working_experiments(20_000 if arguments.quick else 1_000_000)
    for experiment in (*sleeping_experiments(), *closing, *working):
        measure(experiment, sides, arguments, report)
    report.finish(arguments.json)


if __name__ == "__main__":
    main()
