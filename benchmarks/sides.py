"""Two sides of one comparison: a pipeline written once and run by asyncdata and, where it is installed, by tf.data."""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from harness import AtLeast, Row, Samples, alternate, silenced, tensorflow

import asyncdata as ad

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from harness import Arguments, Prepare, Report

__all__ = ("AS_WRITTEN", "EVERYTHING", "Api", "Case", "compare", "consume", "filled", "made", "swallow", "unseen")

Api: TypeAlias = Any
"""`asyncdata` or `tf.data`: modules with the same names in them."""

AS_WRITTEN = ad.Options(optimize=False)

EVERYTHING = 1 << 30
"""More than there is; from 2**31 on each element that is skipped costs tf.data 24 us more."""


@dataclass(frozen=True)
class Case:
    """What is run, on either side, and for how many elements."""

    name: str
    units: int
    run: Callable[[Api], Prepare]
    is_shared: bool = True


def consume(dataset: Any) -> None:
    for _ in dataset:
        pass


def swallow(units: int, builds: Mapping[str, Callable[[Api], Any]], is_shared: bool = True) -> Iterator[Case]:
    """Yield a case for each dataset of so many elements; it is run, and nothing is given to the consumer."""
    for name, build in builds.items():
        yield Case(name, units, swallowed(build), is_shared)


def swallowed(build: Callable[[Api], Any]) -> Callable[[Api], Prepare]:

    def prepare(api: Api) -> Prepare:
        dataset = unseen(api, build(api))
        return lambda: lambda: consume(dataset)

    return prepare


def unseen(api: Api, dataset: Any) -> Any:
    """Return a dataset that makes all that it would give; ours as it is written, as skips may else go below maps."""
    skipped = dataset.skip(EVERYTHING)
    return skipped.with_options(AS_WRITTEN) if api is ad else skipped


def made(build: Callable[[Api, str], Callable[[], Any]]) -> Callable[[Api], Prepare]:
    """Run a function that is given a path of its own each time, where nothing is."""
    folder, numbers = tempfile.TemporaryDirectory(), itertools.count()
    return lambda api: lambda: build(api, str(Path(folder.name, f"{next(numbers)}")))


def filled(build: Callable[[Api, str], Callable[[], Any]]) -> Callable[[Api], Prepare]:
    """Run a function that is given a path of its side; the run that warms up finds nothing there."""
    folder = tempfile.TemporaryDirectory()
    return lambda api: lambda: build(api, str(Path(folder.name, api.__name__)))


def timed_well(contenders: Mapping[str, Prepare], arguments: Arguments) -> dict[str, Samples]:
    """Time the contenders in turn, three times as often if they are within a quarter of each other."""
    samples = alternate(contenders, arguments.rounds(5))
    medians = [runs.median for runs in samples.values()]
    if arguments.quick or len(medians) < 2 or max(medians) > 1.25 * min(medians):
        return samples
    again = alternate(contenders, arguments.rounds(10), warm_up=False)
    return {side: Samples(runs.seconds + again[side].seconds) for side, runs in samples.items()}


def compare(cases: Iterable[Case], arguments: Arguments, report: Report) -> None:
    """Run both sides of each case by turns, and add what an element cost."""
    tf = tensorflow()
    for case in cases:
        sides = {"asyncdata": ad} if tf is None or not case.is_shared else {"asyncdata": ad, "tf.data": tf.data}
        with silenced():
            samples = timed_well({side: case.run(api) for side, api in sides.items()}, arguments)
        ours, *theirs = [runs.median / case.units * 1e6 for runs in samples.values()]
        raw = {side: runs.seconds for side, runs in samples.items()}
        bar = AtLeast(1) if theirs else None
        report.add(Row(case.name, ours, "us", "tf.data", theirs[0] if theirs else None, bar, raw))
