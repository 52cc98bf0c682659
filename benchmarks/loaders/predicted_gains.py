"""Whether the gains come true that `bottleneck()` predicts, where the cure is more parallelism.

    python benchmarks/loaders/predicted_gains.py [--quick] [--json FILE]

A gain is by how much a pipeline is quicker when the change is made that was proposed. Of what was predicted and what is
measured the larger is divided by the other. Time until the first element is left out: it is not what a change is for.
Where other programs have the cores, these change what is measured from one run to the next: then nothing is learnt of
the pipelines that compute.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtMost, Report, Row, parse_arguments

__all__ = ("main",)


def main() -> None:
    """Measure and print the table."""
    arguments = parse_arguments(__doc__ or "")
    report = Report("Whether predicted gains come true")
    for row in gains(60 if arguments.quick else 1000, 1 if arguments.quick else 5):
        report.add(row)
    report.finish(arguments.json)


def fetched(x: int) -> int:
    """Four milliseconds of waiting."""
    time.sleep(0.004)
    return x


async def awaited(x: int) -> int:
    """The same, as a coroutine."""
    await asyncio.sleep(0.004)
    return x


def computed(x: int) -> int:
    """About a millisecond of Python's own code."""
    return sum(range(80_000)) + x


def sorted_rows(x: int) -> Any:
    """About a millisecond of NumPy's, which lets go of the lock."""
    return np.sort((np.arange(30_000) * (x + 7919)) % 10_007)[:8]


async def opened_slowly(x: int) -> ad.Dataset[int]:
    """A file of ten elements that takes forty milliseconds to open."""
    await asyncio.sleep(0.04)
    return ad.Dataset.range(10 * x, 10 * x + 10)


def read_slowly_from(x: int) -> ad.Dataset[int]:
    """A file of twenty elements, each of which takes four milliseconds to come."""

    async def rows() -> AsyncIterator[int]:
        for y in range(20):
            yield await awaited(y + x)

    return ad.Dataset.from_async_iterable(rows)


def flaky() -> Callable[[int], int]:
    """A function that fails at first, and is called again 2 to 4 ms later."""
    failed: set[int] = set()

    def once(x: int) -> int:
        if x not in failed:
            failed.add(x)
            raise ConnectionResetError
        return x

    return ad.with_retries(once, backoff=0.004)


Build = Callable[..., ad.Dataset[Any]]


def planted(elements: int) -> dict[str, tuple[Build, dict[str, Any], float]]:
    """Pipelines whose cure is parallelism, how they begin, and the seconds that a reader takes for each element."""
    source, files = ad.Dataset.range(elements), ad.Dataset.range(elements // 10)
    two = {"num_parallel_calls": 2}
    return {
        "waits, in 2 threads": (lambda **how: source.map(fetched, **how), two, 0.0008),
        "waits, one call at a time": (lambda **how: source.map(fetched, **how), {}, 0.0008),
        "coroutines, 2 at once": (lambda **how: source.map(awaited, **how), two, 0.0008),
        "coroutines, one at a time": (lambda **how: source.map(awaited, **how), {}, 0.0008),
        "calls made again, in 2 threads": (lambda **how: source.map(flaky(), **how), two, 0.0008),
        "slow to open, 2 at once": (lambda **how: files.interleave(opened_slowly, **how), {"cycle_length": 2}, 0.001),
        "slow to read, 2 in turn": (
            lambda **how: files.interleave(read_slowly_from, **how),
            {"cycle_length": 2},
            0.0008,
        ),
        "Python's own code, in 2 threads": (lambda **how: source.map(computed, **how), two, 0.0),
        "Python's own code, inline": (lambda **how: source.map(computed, **how), {}, 0.0),
        "NumPy's code, in 1 thread": (lambda **how: source.map(sorted_rows, **how), {"num_parallel_calls": 1}, 0.0),
    }


def read_slowly(ds: ad.Dataset[Any], step: float) -> tuple[float, Any]:
    """The seconds that an element takes from the second on, and what limits the pipeline."""
    with ds.iterate() as elements:
        for _ in elements:
            if step:
                time.sleep(step)
        stats = elements.stats()
        return (stats.seconds - stats.first_seconds) / stats.elements, elements.bottleneck()


def changed(how: dict[str, Any], change: str) -> dict[str, Any]:
    """The arguments with the change that was proposed, in words that begin with an argument or name it."""
    key, _, value = change.partition("=")
    if key == "num_parallel_calls":
        return {**how, key: int(value.split()[0].rstrip(","))}
    if key == "executor":
        return {**how, key: "process"}
    if change.startswith("read more elements first"):  # a busy machine was slow to start
        return how
    if "cycle_length" not in change:
        raise ValueError(change)
    return {**how, "cycle_length": 64, "num_parallel_calls": ad.AUTOTUNE}


def gains(elements: int, rounds: int) -> Generator[Row]:
    """Whether gains come true: medians of some rounds, before and after by turns."""
    for name, (build, how, step) in planted(elements).items():
        found: list[float] = []
        predicted: list[float] = []
        for _ in range(rounds):
            before, limit = read_slowly(build(**how), step)
            after, _ = read_slowly(build(**changed(how, limit.change)), step)
            found.append(before / after)
            predicted.append(limit.gain)
        off = [max(one / other, other / one) for one, other in zip(predicted, found, strict=True)]
        raw = {"predicted": predicted, "measured": found}
        title = f"{name}: {median(predicted):.2f} said, {median(found):.2f} found"
        yield Row(title, median(off), "times", "exact", 1.0, AtMost(1.2), raw)


if __name__ == "__main__":
    main()
