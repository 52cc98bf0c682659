"""Mixtures of 8, 100 and 1,000 sources: what an element costs, threads, memory and the first batch.

    python benchmarks/loaders/mixture.py [--quick] [--json FILE]

Elements are drawn with equal weights and a seed, in batches of 64. The sources are numbers in memory, repeated without
end, and for asyncdata and tf.data also TFRecord files; for asyncdata also with `map(num_parallel_calls=2)`, and
generators. The first batch counts from the first call of the library: sources are made, mixed and opened. Memory is
what the process has more after the elements have come than before. Each loader runs in a process of its own. The others
are those of `pip install tensorflow grain datasets` that are there.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtLeast, AtMost, Report, Row, fresh, installed, parse_arguments, tensorflow

__all__ = ("main",)

BATCH = 64
SOURCES = (8, 100, 1000)
SIZE = 1000
"""Numbers in a source."""
RECORDS = 20
"""Records in a file."""
FOLDER = "MIXTURE_FILES"

Batches: TypeAlias = Iterator[Any]
Open: TypeAlias = Callable[[int], Batches]


@dataclass(frozen=True)
class Outcome:
    """Seconds to the first batch, microseconds of processor time for an element, threads, and KB for each source."""

    first: float
    cost: float
    threads: int
    memory: float


# the loaders


def numbers(source: int) -> Iterator[int]:
    return itertools.cycle(range(source * SIZE, (source + 1) * SIZE))


def identity(x: Any) -> Any:
    return x


OWN: dict[str, Callable[[int], ad.Dataset[Any]]] = {
    "asyncdata": lambda source: ad.Dataset.range(source * SIZE, (source + 1) * SIZE).repeat(),
    "asyncdata, map in 2 threads": lambda source: (
        ad.Dataset.range(source * SIZE, (source + 1) * SIZE).repeat().map(identity, num_parallel_calls=2)
    ),
    "asyncdata, generators": lambda source: ad.Dataset.from_generator(numbers, args=(source,)),
    "asyncdata, TFRecord": lambda source: ad.TFRecordDataset(path_of(source)).repeat(),
}


def mixed(make: Callable[[int], ad.Dataset[Any]], count: int) -> Batches:
    return iter(ad.Dataset.sample_from_datasets([make(source) for source in range(count)], seed=1).batch(BATCH))


def tf_data(files: bool, count: int) -> Batches:
    tf = tensorflow()
    assert tf is not None

    def source(number: int) -> Any:
        if files:
            return tf.data.TFRecordDataset(path_of(number)).repeat()
        return tf.data.Dataset.range(number * SIZE, (number + 1) * SIZE).repeat()

    return iter(tf.data.Dataset.sample_from_datasets([source(number) for number in range(count)], seed=1).batch(BATCH))


def grain(count: int) -> Batches:
    import grain

    sources = [grain.MapDataset.range(number * SIZE, (number + 1) * SIZE).repeat() for number in range(count)]
    return iter(grain.MapDataset.mix(sources, [1 / count] * count).to_iter_dataset().batch(BATCH))


def hugging_face(count: int) -> Batches:
    import datasets

    sources = [datasets.IterableDataset.from_generator(named, gen_kwargs={"source": number}) for number in range(count)]
    return iter(datasets.interleave_datasets(sources, seed=1, probabilities=[1 / count] * count).batch(BATCH))


def named(source: int) -> Iterator[dict[str, int]]:
    return ({"x": number} for number in numbers(source))


PEERS: dict[str, dict[str, Open]] = {
    "tensorflow": {
        "tf.data": functools.partial(tf_data, False),
        "tf.data, TFRecord": functools.partial(tf_data, True),
    },
    "grain": {"grain": grain},
    "datasets": {"datasets": hugging_face},
}
"""By the package that has to be installed."""


# one loader, in a process of its own


def path_of(source: int) -> str:
    return os.path.join(os.environ[FOLDER], f"{source}.tfrecord")


def write_files(count: int) -> None:
    for source in range(count):
        with ad.TFRecordWriter(path_of(source)) as writer:
            for record in range(RECORDS):
                writer.write(b"%d %d" % (source, record))


def memory() -> int:
    """Return the bytes that this process has in memory."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if status.exists() else 0


def threads() -> int:
    """Return the number of threads of this process, those that are not Python's included."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.exists() else threading.active_count()


def run_alone(name: str, count: int, elements: int) -> None:
    """Measure one loader in this process and print the outcome."""
    warnings.simplefilter("ignore")
    makers: dict[str, Open] = {
        **{own: functools.partial(mixed, make) for own, make in OWN.items()},
        **{peer: make for group in PEERS.values() for peer, make in group.items()},
    }
    next(makers[name](2))  # what is imported and compiled once
    before, begin = memory(), time.perf_counter()
    batches = makers[name](count)
    next(batches)
    first = time.perf_counter() - begin
    most, begin = threads(), time.process_time()
    for number in range(elements // BATCH):
        next(batches)
        most = max(most, threads()) if number % 16 == 0 else most
    cost = (time.process_time() - begin) / (elements // BATCH * BATCH)
    print(json.dumps(asdict(Outcome(first, cost * 1e6, most, (memory() - before) / 1024 / count))))


# the table


class WideReport(Report):
    """Has room for a loader's name and what was measured of it."""

    WIDTHS = (56, *Report.WIDTHS[1:])


def measure(report: Report, name: str, count: int, rounds: int, elements: int) -> Outcome:
    """Add the rows of one loader with so many sources: medians of some runs."""
    runs = [Outcome(**fresh(__file__, "--loader", name, count, elements)) for _ in range(rounds)]
    median = Outcome(*[float(np.median([asdict(run)[part] for run in runs])) for part in Outcome.__annotations__])  # type: ignore[arg-type]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    own = name in OWN and count == max(SOURCES)
    bars: dict[str, Any] = {
        "first": ("bar", 3.0, AtMost(1)),
        "threads": ("bar", 4 * cores + 64, AtMost(1)),
        "memory": ("bar", 50.0, AtMost(1)),
    }
    units = {"first": ("first batch", "s"), "cost": ("processor time of an element", "µs")}
    units |= {"threads": ("threads", ""), "memory": ("memory of a source", "KB")}
    for part, (what, unit) in units.items():
        against, reference, bar = bars.get(part, ("", None, None)) if own else ("", None, None)
        samples = {name: [float(asdict(run)[part]) for run in runs]}
        report.add(
            Row(f"{name}, {count} sources: {what}", asdict(median)[part], unit, against, reference, bar, samples)
        )
    return median


def main() -> None:
    """Measure all loaders that are there; asyncdata alone in a quick run."""
    arguments = parse_arguments(__doc__ or "")
    peers = [] if arguments.quick else [name for package in installed(PEERS) for name in PEERS[package]]
    report = WideReport("mixtures of many sources")
    counts = (SOURCES[0], 50) if arguments.quick else SOURCES
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder
        write_files(max(counts))
        for count in counts:
            elements = 2_000 if arguments.quick else 50_000
            costs = {
                name: measure(report, name, count, arguments.rounds(3), elements).cost
                for name in (*OWN, *peers)
                if count == max(counts) or "," not in name
            }
            if count == SOURCES[0] and len(costs) > 1:
                best = min((cost, name) for name, cost in costs.items() if name not in OWN)
                report.add(
                    Row(f"{count} sources, the best other", costs["asyncdata"], "µs", best[1], best[0], AtLeast(3))
                )
    report.finish(arguments.json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--loader"]:
        run_alone(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
