"""A trainer that is Python code, beside a pipeline that is Python code: in one process and in two.

    python benchmarks/loaders/placement.py [--quick] [--json FILE]

The trainer computes in a plain loop, which holds the interpreter's lock, and so does the pipeline's function. The limit
is the two of them in processes that have nothing to do with each other: nothing is sent, and the slower one counts.
Batches of 38.5 MB are 256 images; small elements are pairs of numbers. Last comes the processor time that the trainer's
process takes for each element, its own computing included; a trainer that reads nothing is the limit. That does not
depend on what else the machine does, as the other rows do where there are no two cores to be had.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtMost, Report, Row, alternate, parse_arguments

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from harness import Arguments

__all__ = ("main",)

IMAGES = (256, 224, 224, 3)


class Work(NamedTuple):
    """How many elements there are, and how many turns of a loop each costs the trainer and the pipeline."""

    kind: str
    count: int
    trained: int
    made: int


def compute(turns: int) -> int:
    """Hold the interpreter's lock for a while."""
    total = 0
    for turn in range(turns):
        total += turn
    return total


def pipeline(work: Work, placement: Any = "thread") -> ad.Dataset[Any]:
    """Make the elements, with a function that holds the lock."""

    def batch(number: int) -> Any:
        compute(work.made)
        return np.full(IMAGES, number % 256, np.uint8)

    def pair(number: int) -> Any:
        compute(work.made)
        return number, number + 1

    numbers = ad.Dataset.range(work.count)
    return numbers.map({"batches": batch, "pairs": pair}[work.kind]).with_options(ad.Options(placement=placement))


def alone(work: Work, signals: Connection) -> None:
    """Read the pipeline for nobody, each time that somebody says so."""
    ds = pipeline(work)
    while signals.recv():
        for _ in ds:
            pass
        signals.send(True)


class Limit:
    """The trainer here, and the pipeline in a process that it has nothing to do with."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.signals, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=alone, args=(work, theirs), daemon=True)
        self.process.start()

    def run(self) -> None:
        """Train on nothing, while the pipeline runs."""
        self.signals.send(True)
        for _ in range(self.work.count):
            compute(self.work.trained)
        self.signals.recv()

    def close(self) -> None:
        """End the process."""
        self.signals.send(False)
        self.process.join()


def trained(work: Work, ds: ad.Dataset[Any]) -> Callable[[], None]:
    """A run in which the trainer reads every element, and computes."""

    def run() -> None:
        for _ in ds:
            compute(work.trained)

    return run


def processor_time(run: Callable[[], None], rounds: int) -> float:
    """Seconds of processor time that this process takes for a run, the median of some."""
    found: list[float] = []
    for _ in range(rounds):
        begin = time.process_time()
        run()
        found.append(time.process_time() - begin)
    return statistics.median(found)


def weigh(title: str, work: Work, bar: float | None, arguments: Arguments, report: Report) -> None:
    """Measure what the trainer's process takes for one kind of elements."""

    def train() -> None:
        for _ in range(work.count):
            compute(work.trained)

    rounds = arguments.rounds(5)
    alone = processor_time(train, rounds) / work.count * 1e6
    for name in ("thread", "process"):
        run = trained(work, pipeline(work, name))
        run()
        used = processor_time(run, rounds) / work.count * 1e6
        bound = None if bar is None or name == "thread" else AtMost(bar)
        report.add(Row(f"processor time, {title}, {name}", used, "us", "trainer alone", alone, bound))


def measure(title: str, work: Work, bar: float | None, arguments: Arguments, report: Report) -> None:
    """Time one kind of elements in all three."""
    limit = Limit(work)
    placed = {name: pipeline(work, name) for name in ("thread", "process")}
    contenders = {name: (lambda ds=ds: trained(work, ds)) for name, ds in placed.items()}
    samples = alternate({**contenders, "apart": lambda: limit.run}, arguments.rounds(7))
    limit.close()
    apart, beside = samples["apart"].median, samples["process"].median
    for name in ("thread", "process"):
        bound = None if bar is None or name == "thread" else AtMost(bar)
        row = Row(
            f"{title}, {name}", samples[name].median, "s", "two processes", apart, bound, {name: samples[name].seconds}
        )
        report.add(row)
    report.add(Row(f"{title}, thread for process", samples["thread"].median, "s", "process", beside))


def main() -> None:
    """Measure batches and small elements, and print the table."""
    arguments = parse_arguments(__doc__ or "")
    report = Report("A trainer and a pipeline that are both Python code")
    few, many = (2, 500) if arguments.quick else (60, 200_000)
    kinds = {
        "batches of 38.5 MB": Work("batches", few, 400_000, 250_000),
        "pairs of numbers": Work("pairs", many, 60, 40),
    }
    for title, work in kinds.items():
        measure(title, work, 1.5 if work.kind == "batches" else None, arguments, report)
    for title, work in kinds.items():
        weigh(title, work, 1.1 if work.kind == "batches" else None, arguments, report)
    report.finish(arguments.json)


if __name__ == "__main__":
    main()
