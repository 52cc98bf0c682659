"""Worker processes: functions that hold the interpreter's lock, large results, cheap functions, and a worker that dies.

    python benchmarks/loaders/processes.py [--quick] [--json FILE]

Each loader runs each job in a process of its own, by turns, with workers that are warm: one epoch goes before the one
that is timed. Times are per element. The limit of the first job is two processes that do half of it each, and send
nothing back; that of the second is one copy of the batch into memory that is there already. A quick run is of asyncdata
alone; PyTorch's DataLoader is there where `pip install torch` was.

The recovery is the longest wait for an element in an epoch in which one worker is killed; the start is that of a fresh
interpreter's first worker, from building the pipeline to its first element.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time
import warnings
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtLeast, AtMost, Report, Row, fresh, installed, parse_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from harness import Arguments

    Epoch = Callable[[], Iterable[Any]]

__all__ = ("main",)

BATCH = (256, 224, 224, 3)
ELEMENT = 150_000
KEPT: dict[Any, Any] = {}
"""What a worker has made already: its results are warm, so that what is timed is how they travel."""


# the functions


def pure_python(number: int) -> int:
    """About 0.6 ms that hold the interpreter's lock."""
    for turn in range(8000):
        number = (number * 31 + turn) % 1_000_003
    return number


def kept(shape: Any, number: int) -> np.ndarray:
    """A large result that costs next to nothing to make; each time another object, as pickle sends one object once."""
    if shape not in KEPT:
        KEPT[shape] = np.ones(shape, np.uint8)
    KEPT[shape].flat[0] = number % 256
    return KEPT[shape][:]


def filled(shape: Any, number: int) -> np.ndarray:
    """A large result that is made in each call, in the memory that asyncdata has for it."""
    array = ad.empty(shape, np.uint8)
    array.fill(number % 256)
    return array


def small(number: int) -> np.ndarray:
    return np.full(16, number, np.float32)


def plus_one(number: int) -> int:
    return number + 1


# the loaders: each gives a function that begins an epoch


def asyncdata(job: Job, count: int) -> Epoch:
    ds = ad.Dataset.range(count * (job.batch or 1)).map(
        job.function, executor="process", num_parallel_calls=job.workers
    )
    return lambda: ds if job.batch is None else ds.batch(job.batch)


def pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=get_context("forkserver"))


def grouped(job: Job, count: int) -> Epoch:
    """The standard pool, whose groups are given by hand."""
    return partial(pool(job.workers).map, job.function, range(count), chunksize=job.group)


def separate(job: Job, count: int) -> Epoch:
    """Processes that do a part each and say nothing but that they are done."""
    executor = pool(job.workers)

    def epoch() -> Iterator[None]:
        numbers = [range(part, count, job.workers) for part in range(job.workers)]
        parts = [executor.submit(through, job.function, part) for part in numbers]
        yield from (part.result() for part in parts)

    return epoch


def through(function: Callable[[int], Any], numbers: Iterable[int]) -> None:
    for number in numbers:
        function(number)


def copies(job: Job, count: int) -> Epoch:
    """Copies of a result, or of a batch of them, into memory that is there already."""
    result = job.function(0) if job.batch is None else np.stack([job.function(0)] * job.batch)
    warm = result.copy()
    return lambda: (np.copyto(warm, result) for _ in range(count))


def data_loader(job: Job, count: int) -> Epoch:
    from torch.utils.data import DataLoader, Dataset

    class Indexed(Dataset):
        def __len__(self) -> int:
            return count * (job.batch or 1)

        def __getitem__(self, number: int) -> Any:
            return job.function(number)

    loader = DataLoader(Indexed(), batch_size=job.batch, num_workers=job.workers, persistent_workers=True)
    return lambda: loader


LOADERS: dict[str, Any] = {
    "asyncdata": asyncdata,
    "two processes": separate,
    "standard pool": grouped,
    "warm copy": copies,
    "DataLoader": data_loader,
}


# the jobs


@dataclass(frozen=True)
class Job:
    """What is done, on how many elements (or `batch`es of them) by how many workers, what asyncdata is held against,
    how many calls make a group where that is given by hand, and how many times it is run: more often where a few
    percent matter."""

    function: Callable[[int], Any]
    workers: int
    count: int
    unit: str
    against: dict[str, Any]
    batch: int | None = None
    group: int = 7
    rounds: int = 5

    def of(self, quick: bool) -> int:
        """How many elements an epoch has."""
        return max(2, self.count // 200) if quick else self.count


JOBS = {
    "pure Python, 0.6 ms": Job(
        pure_python,
        2,
        2000,
        "us",
        {"two processes": AtLeast(0.92), "standard pool": None, "DataLoader": None},
        rounds=15,
    ),
    "batches of 38.5 MB that are there": Job(
        partial(kept, BATCH), 1, 100, "ms", {"warm copy": AtMost(1.5), "DataLoader": AtLeast(8)}
    ),
    "batches of 38.5 MB, made in the call": Job(
        partial(filled, BATCH), 1, 100, "ms", {"warm copy": AtMost(1.5), "DataLoader": AtLeast(8)}
    ),
    "batches of 38.5 MB, of 256 results": Job(
        partial(kept, BATCH[1:]), 1, 100, "ms", {"warm copy": AtMost(1.5), "DataLoader": AtLeast(8)}, BATCH[0]
    ),
    "batches of 38.5 MB, of 256 made in the call": Job(
        partial(filled, BATCH[1:]), 1, 100, "ms", {"warm copy": AtMost(1.5), "DataLoader": AtLeast(8)}, BATCH[0]
    ),
    "elements of 150 KB": Job(partial(kept, ELEMENT), 1, 5000, "us", {"DataLoader": AtLeast(5)}),
    "arrays of 64 bytes": Job(small, 2, 50_000, "us", {"standard pool": AtLeast(1)}, group=1000),
    "x + 1": Job(plus_one, 2, 500_000, "us", {"standard pool": None}, group=1000),
}
FACTOR = {"us": 1e6, "ms": 1e3}


def run_alone(name: str, loader: str, count: int) -> None:
    """What the process of one loader does: print the seconds of its second epoch."""
    warnings.simplefilter("ignore")
    job = JOBS[name]
    epoch = LOADERS[loader](job, count)
    deque(epoch(), 0)
    start = time.perf_counter()
    for _ in epoch():  # an element is let go of before the next one is asked for, as in a loop that trains
        pass
    print(json.dumps(time.perf_counter() - start))


def measure(name: str, job: Job, present: Iterable[str], arguments: Arguments, report: Report) -> None:
    """Run a job in the loaders that are there by turns, and add its rows."""
    count = job.of(arguments.quick)
    others = [loader for loader in job.against if loader in present]
    runs: dict[str, list[float]] = {loader: [] for loader in ("asyncdata", *others)}
    for _ in range(arguments.rounds(job.rounds)):
        for loader, seconds in runs.items():
            seconds.append(fresh(__file__, "--alone", name, loader, count))
    each = {loader: statistics.median(seconds) / count * FACTOR[job.unit] for loader, seconds in runs.items()}
    for loader in others:
        report.add(Row(name, each["asyncdata"], job.unit, loader, each[loader], job.against[loader], runs))
    if name == "x + 1":
        report.add(Row(name, each["asyncdata"], job.unit, "bar", 1, AtMost(1), runs))
    elif not others:
        report.add(Row(name, each["asyncdata"], job.unit, samples=runs))


# starting, and starting again


def answer(number: int) -> int:
    time.sleep(0.001)
    return os.getpid()


def start() -> None:
    """Print the milliseconds to the first element of the first worker."""
    numbers = ad.Dataset.range(4)  # imports the modules of `Dataset`
    begin = time.perf_counter()
    with numbers.map(answer, executor="process", num_parallel_calls=1).iterate() as elements:
        next(elements)
        print(json.dumps((time.perf_counter() - begin) * 1000))


def recover() -> None:
    """Kill a worker in the middle; print the milliseconds of the longest wait for an element."""
    waits = []
    with ad.Dataset.range(400).map(answer, executor="process", num_parallel_calls=2).iterate() as elements:
        workers = [next(elements) for _ in range(100)]
        os.kill(workers[-1], signal.SIGKILL)
        begin = time.perf_counter()
        for worker in elements:
            waits.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            workers.append(worker)
    assert len(workers) == 400
    assert len({*workers}) > 2, "nobody came in the dead worker's place"
    print(json.dumps(max(waits) * 1000))


MOMENTS = {"first element of the first worker": start, "longest wait when a worker is killed": recover}


def main() -> None:
    """Run every job and print the table."""
    arguments = parse_arguments(__doc__ or "")
    missing = set() if arguments.quick or installed(["torch"]) else {"DataLoader"}
    present = set() if arguments.quick else {*LOADERS} - missing
    report = Report("Worker processes, per element")
    for name, job in JOBS.items():
        measure(name, job, present, arguments, report)
    for name in MOMENTS:
        times = [fresh(__file__, "--moment", name) for _ in range(arguments.rounds(5))]
        report.add(Row(name, statistics.median(times), "ms", samples={name: times}))
    report.finish(arguments.json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        run_alone(*sys.argv[2:4], int(sys.argv[4]))
    elif sys.argv[1:2] == ["--moment"]:
        MOMENTS[sys.argv[2]]()
    else:
        main()
