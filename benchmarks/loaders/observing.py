"""What it costs that a pipeline tells what it does, with meters and without, and with a trace, by turns.

    python benchmarks/loaders/observing.py [--quick] [--json FILE]

"Without" puts nothing in the place of what the meters do; the calls of these functions remain, and are part of it.
A pull is that of one element from a source in memory through two maps and an `enumerate`, a block for each element.
"Each function" is what it costs more, in processor time, that of functions which are called in one pass some passes are
timed, so that each has a row of its own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np

import asyncdata as ad
from asyncdata.executors.function_times import FunctionTimes
from asyncdata.graph import node
from asyncdata.runtime.meter import Meter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtMost, Report, Row, alternate, parse_arguments

__all__ = ("main",)

STAGES = 4


def decoded(x: int) -> Any:
    """About 150 microseconds of NumPy's, as a small image takes."""
    return np.full((128, 128, 3), x % 251, np.float32) * np.float32(0.5)


def pipelines(scale: int) -> dict[str, Callable[[], ad.Dataset[Any]]]:
    """Whole pipelines, each of about half a second."""
    rows = np.zeros((scale * 4, 256), np.float32)
    return {
        "images, 2 threads, batches of 32": lambda: (
            ad.Dataset.range(scale).map(decoded, num_parallel_calls=2).batch(32)
        ),
        "rows shuffled, mapped, batches of 64": lambda: (
            ad.Dataset.from_tensor_slices(rows).shuffle(1000, seed=1).map(lambda row: row * 2).batch(64)
        ),
        "numbers, two maps and a filter": lambda: (
            ad.Dataset.range(scale * 100).map(abs).filter(lambda x: x >= 0).map(lambda x: x + 1).batch(256)
        ),
        "interleave of 64, batches of 32": lambda: (
            ad.Dataset.range(64).interleave(lambda i: ad.Dataset.range(scale).map(abs), cycle_length=4).batch(32)
        ),
    }


@contextmanager
def unobserved() -> Generator[None]:
    """Have the meters do nothing."""

    def nothing(*_: Any) -> None:
        return None

    names = ("record", "gave", "awaited", "collected", "waited", "was_full")
    replaced = [patch.object(Meter, name, nothing) for name in names]
    replaced += [patch.object(Meter, "timed", lambda _, blocks: blocks)]
    replaced += [patch.object(node, "metered", lambda source, *_: source)]
    for one in replaced:
        one.start()
    try:
        yield
    finally:
        for one in replaced:
            one.stop()


def read_all(build: Callable[[], ad.Dataset[Any]], around: Callable[[], Any]) -> Callable[[], Callable[[], None]]:
    """A run of a pipeline, as the harness times it."""

    def run(ds: ad.Dataset[Any]) -> None:
        with around():
            for _ in ds:
                pass

    def prepare() -> Callable[[], None]:
        ds = build()
        return lambda: run(ds)

    return prepare


def in_one_pass(scale: int) -> dict[str, Callable[[], ad.Dataset[Any]]]:
    """Pipelines that call several functions in one pass."""
    return {
        "decode, crop and flip": lambda: (
            ad.Dataset.range(scale).map(decoded).map(lambda x: x[8:120, 8:120]).map(lambda x: x[:, ::-1]).batch(32)
        ),
        "three functions of a microsecond": lambda: (
            ad.Dataset.range(scale * 20).map(bits).map(bits).map(bits).batch(256)
        ),
    }


def bits(x: int) -> int:
    return sum([x >> place & 1 for place in range(8)])


def pull(elements: int) -> ad.Dataset[int]:
    """One element to a block: nothing reads ahead by more."""
    plain = ad.Options(optimize=False)
    return ad.Dataset.range(elements).map(abs).map(abs).enumerate().prefetch(1).with_options(plain)


def main() -> None:
    """Measure and print the table."""
    arguments = parse_arguments(__doc__ or "")
    report = Report("What meters and traces cost")
    scale, rounds = (200, 1) if arguments.quick else (20_000, 11)
    for name, build in pipelines(scale).items():
        ways = {"without": unobserved, "with": nullcontext, "trace": ad.trace}
        found = alternate({way: read_all(build, around) for way, around in ways.items()}, rounds)
        for way, bar in (("with", AtMost(1.02)), ("trace", AtMost(1.05))):
            pairs = [one / other for one, other in zip(found[way].seconds, found["without"].seconds, strict=True)]
            raw = {key: runs.seconds for key, runs in found.items()}
            title = f"{name}, {'meters' if way == 'with' else way}"
            report.add(Row(title, median(pairs), "times", "without", 1.0, bar, raw))
    for name, build in in_one_pass(scale // 30).items():
        report.add(functions(name, build, 11 * rounds))  # many short ones, as the difference is small
    report.add(pulls(200 if arguments.quick else 20_000, rounds))
    report.finish(arguments.json)


def functions(name: str, build: Callable[[], ad.Dataset[Any]], rounds: int) -> Row:
    """What it costs that each function has its own time, in processor time, by turns."""
    seconds: dict[str, list[float]] = {"with": [], "without": []}
    never = patch.object(FunctionTimes, "is_due", lambda *_: False)
    for number in range(rounds):
        ways = [("with", nullcontext()), ("without", never)]
        for way, around in ways if number % 2 else reversed(ways):
            with around:
                ds, begin = build(), time.process_time()
                read_all(lambda ds=ds: ds, nullcontext)()()
                seconds[way].append(time.process_time() - begin)
    more = median([one / other for one, other in zip(seconds["with"], seconds["without"], strict=True)])
    return Row(f"{name}, each function", more, "times", "without", 1.0, AtMost(1.01), seconds)


def pulls(elements: int, rounds: int) -> Row:
    """What a pull costs more in each step, in microseconds of the processor."""
    seconds: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(rounds):
        for way, around in (("with", nullcontext), ("without", unobserved)):
            ds, begin = pull(elements), time.process_time()
            read_all(lambda ds=ds: ds, around)()()
            seconds[way].append(time.process_time() - begin)
    more = (median(seconds["with"]) - median(seconds["without"])) / elements / STAGES * 1e6
    return Row("a pull of one element, each step", more, "us", "0.3 us", 0.3, AtMost(1), seconds)


if __name__ == "__main__":
    main()
