"""How far one trainer goes: with up to 1,000 actors, and with up to 10^9 elements in 10^7 files.

    python benchmarks/loaders/cluster_simulated.py [--quick] [--json FILE] [--costs FILE] [--plot FOLDER]

Actors are simulated, event by event, in virtual time: each has one call running and one at hand, calls take lognormal
times (a quarter of the mean up or down), results are delivered in order, and two calls for each actor are on their way
or wait for an earlier one. The trainer spends its processor time on one result after the other; how much comes from
`cluster.py --json` (`--costs`; `cluster_costs.json` is one such run). The network is not simulated: 100 batches of 10
MB a second are 8 Gbit/s.

Pipelines over files are run as they are, with ranges of 100 elements in the place of files: order, positions and states
are those of so many files, and reading is not measured. Listing is worked out from what a name costs here and from
`PAGE`, for a page of 1,000 names from an object store.

`--plot` draws the curves, which docs/scale-out.md shows.
"""

from __future__ import annotations

import heapq
import json
import random
import sys
import time
from argparse import ArgumentParser
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import Report, Row, parse_arguments
from loaders.log_picture import Curve, drawn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness import Arguments

__all__ = ("main",)

RECORDED = Path(__file__).with_name("cluster_costs.json")
"""What `cluster.py --json` recorded on two quiet cores."""

ROWS = {
    "batch of 10 MB": ("rows to batches of 10 MB, views: trainer's processor", 1e-3),
    "cheap element": ("cheap elements: trainer's processor", 1e-6),
}
WORK = (0.1, 0.5, 2.0)
"""Seconds that an actor works on a batch of 10 MB."""

ACTORS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
PER_FILE = 100
PAGE = 0.05
"""Seconds that an object store takes for a page of 1,000 names."""


# actors


class Simulated(NamedTuple):
    """What a run of so many actors came to."""

    throughput: float
    processor: float
    """The share of the time that the trainer's thread was busy."""


def simulated(actors: int, work: float, cost: float, batches: int) -> Simulated:
    """Run so many batches in order through actors, in virtual time."""
    dice, clock, busy, given, done = random.Random(actors), 0.0, 0.0, 0, 0
    free_at = [0.0] * actors  # when each actor has done all that it was given
    running: list[tuple[float, int, int]] = []
    ready: set[int] = set()
    room = [*range(actors)] * 2  # actors that can be given a call, of two at a time
    while done < batches:
        while room and given - done < 2 * actors:
            actor = room.pop(0)
            free_at[actor] = max(free_at[actor], clock) + dice.lognormvariate(-(0.25**2) / 2, 0.25) * work
            heapq.heappush(running, (free_at[actor], given, actor))
            given += 1
        arrived, number, actor = heapq.heappop(running)
        clock = max(clock, arrived) + cost  # the trainer takes one result after the other
        busy += cost
        room.append(actor)
        ready.add(number)
        while done in ready:
            ready.remove(done)
            done += 1
    return Simulated(done / clock, busy / clock)


def limit(work: float, cost: float) -> float:
    """Return how many actors keep one trainer's thread busy all the time."""
    return work / cost


def add_actors(report: Report, cost: float, quick: bool) -> tuple[list[Curve], list[Curve]]:
    """Add throughput and the trainer's processor time, and return the curves of both."""
    speed: list[Curve] = []
    used: list[Curve] = []
    for work in WORK:
        found = [(n, simulated(n, work, cost, (20 if quick else 40) * n + 200)) for n in ACTORS]
        name, most = f"{work:g} s a batch", limit(work, cost)
        marks = [(most, f"{most:.0f} actors")] if most <= ACTORS[-1] else []
        speed.append(Curve(name, [(n, run.throughput) for n, run in found], marks=marks))
        used.append(Curve(name, [(n, 100 * run.processor) for n, run in found]))
        for n, run in found:
            if n in {1, 10, 100, 1000}:
                report.add(Row(f"{name}, {n} actors", run.throughput, "batches/s", "actors alone", n / work))
                report.add(Row(f"{name}, {n} actors: trainer's core", 100 * run.processor, "%"))
        report.add(Row(f"{name}: one trainer is the limit from", most, "actors"))
    speed.append(Curve("one trainer's limit", [(1, 1 / cost), (ACTORS[-1], 1 / cost)], dashed=True))
    return speed, used


# files


def file_of(number: int) -> ad.Dataset[Any]:
    """What is in a "file"."""
    return ad.Dataset.range(number * PER_FILE, (number + 1) * PER_FILE)


def of_files(count: int) -> ad.Dataset[Any]:
    """All elements of so many files, their order drawn anew for each epoch."""
    return ad.Dataset.range(count).shuffle(seed=1).interleave(file_of, 16).shuffle(1000, seed=2).batch(32)


def seconds(run: Any) -> float:
    """Return the least of seven times."""
    taken: list[float] = []
    for _ in range(7):
        begin = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begin)
    return min(taken)


def stopped(ds: ad.Dataset[Any], batches: int) -> tuple[float, dict[str, Any]]:
    """Return what a state takes after some batches, and the state."""
    with ds.iterate() as elements:
        for _ in range(batches):
            next(elements)
        return seconds(elements.state_dict), elements.state_dict()


def first_of(ds: ad.Dataset[Any], state: Any = None) -> None:
    """Read one element."""
    with ds.iterate(state=state) if state else ds.iterate() as elements:
        next(elements)


def listing_costs(count: int) -> tuple[float, float]:
    """Return the seconds that a name costs to be read, page by page, and put into a dataset, and its bytes."""
    begin = time.perf_counter()
    names: list[str] = []
    for page in range(0, count, 1000):
        names += [f"s3://bucket/training/part-{number:08d}.tfrecord" for number in range(page, page + 1000)]
    ds = ad.Dataset.from_list(names)
    taken = time.perf_counter() - begin
    assert len(ds) == count
    return taken / count + PAGE / 1000, sum(map(sys.getsizeof, names)) / count + 8


def add_files(report: Report, quick: bool) -> tuple[list[Curve], list[Curve]]:
    """Add what order and state cost for so many files, and return the curves of times and sizes."""
    counts = [10**power for power in (range(3, 6) if quick else range(3, 8))]
    a_name, size_of_name = listing_costs(10**5 if quick else 10**6)
    names = [(count * PER_FILE, a_name * count) for count in counts]
    memory = [(count * PER_FILE, size_of_name * count) for count in counts]
    times: dict[str, list[tuple[float, float]]] = {
        name: [] for name in ("first batch", "state asked for", "first after a resume")
    }
    sizes: list[tuple[float, float]] = []
    for count in counts:
        build = partial(of_files, count)
        taken, state = stopped(build(), 100)
        size = len(json.dumps(state))
        found = {"first batch": seconds(lambda build=build: first_of(build())), "state asked for": taken}
        found["first after a resume"] = seconds(lambda build=build, state=state: first_of(build(), state))
        for name, value in found.items():
            times[name].append((count * PER_FILE, value))
            report.add(Row(f"{count:.0e} files: {name}", value * 1e3, "ms"))
        sizes.append((count * PER_FILE, size))
        report.add(Row(f"{count:.0e} files: size of a state", size, "bytes"))
    for count, (_, taken), (_, size) in zip(counts, names, memory, strict=True):
        report.add(Row(f"{count:.0e} files: listing, worked out", taken, "s"))
        report.add(Row(f"{count:.0e} files: names in memory, worked out", size / 1e6, "MB"))
    listing, held = Curve("listing, worked out", names, True), Curve("names, worked out", memory, True)
    return [*[Curve(name, points) for name, points in times.items()], listing], [Curve("state", sizes), held]


def costs_in(file: Path) -> dict[str, float]:
    """Return the seconds of the trainer's processor that `cluster.py` recorded in a file."""
    rows = {row["name"]: row["measured"] for row in json.loads(file.read_text())["rows"]}
    return {name: rows[row] * unit for name, (row, unit) in ROWS.items()}


def plotted(folder: Path, name: str, curves: Sequence[Curve], across: str, up: str) -> None:
    """Write a picture."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(drawn(curves, across, up), encoding="utf-8")


def own_arguments() -> tuple[Path, Path | None]:
    """Take away and return the options that other benchmarks do not have."""
    parser = ArgumentParser(add_help=False)
    parser.add_argument("--costs", type=Path, default=RECORDED)
    parser.add_argument("--plot", type=Path)
    found, sys.argv[1:] = parser.parse_known_args()
    return found.costs, found.plot


def main() -> None:
    """Simulate and measure, print the table and draw the pictures."""
    costs_file, folder = own_arguments()
    arguments: Arguments = parse_arguments(__doc__ or "")
    report = Report("One trainer: actors simulated, files measured")
    costs = costs_in(costs_file)
    for name, cost in costs.items():
        report.add(Row(f"{name}: trainer's processor, recorded", cost * 1e6, "us"))
        report.add(Row(f"{name}: most that one trainer takes", 1 / cost, "/s"))
    speed, used = add_actors(report, costs["batch of 10 MB"], arguments.quick)
    times, sizes = add_files(report, arguments.quick)
    if folder is not None:
        plotted(folder, "cluster-throughput.svg", speed, "actors", "batches of 10 MB a second")
        plotted(folder, "cluster-processor.svg", used, "actors", "the trainer's thread, % of one core")
        plotted(folder, "cluster-files.svg", times, "elements, 100 in a file", "seconds")
        plotted(folder, "cluster-states.svg", sizes, "elements, 100 in a file", "bytes")
    report.finish(arguments.json)


if __name__ == "__main__":
    main()
