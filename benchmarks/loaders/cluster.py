"""A Ray cluster on this machine: large batches and cheap elements, beside Ray's own calls that do the same work.

    pip install 'asyncdata[ray]'
    python benchmarks/loaders/cluster.py [--quick] [--json FILE]

Both sides have two actors, and run by turns in one process, seven times; actors are warm. Ray's own side calls actors
that make the same batch of 10 MB, two calls ahead for each, and takes results in order. Bars hold the median ratio of
turns, with read-only views on both sides (`copy=False`); with results that are the consumer's own it is reported.
Processor time is that of the trainer's process. On one machine Ray is not what to use, see docs/scale-out.md: this
measures what we add to it. Rows that are joined here come in groups, on Ray's side in four for each batch.

Photos are JPEG files of 500 x 375 pixels, which both sides read, decode to 224 x 224 and give in batches of 64: Ray
Data by `read_images` and `iter_batches`, which promise no order; ours in order. This needs `pip install 'ray[data]'
pillow`, and is held against nothing.

The last row is the longest wait for an element after an actor is killed, which is reported, and held against nothing.
"""

from __future__ import annotations

import logging
import os
import signal
import statistics
import sys
import tempfile
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtLeast, AtMost, Below, Report, Row, installed, parse_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Epoch = Callable[[], Iterable[Any]]

__all__ = ("main",)

ACTORS, AHEAD = 2, 2
ROWS, ROW = 64, 160_000
BATCH = ROWS * ROW
CHEAP = 200_000
PARTS, SIDE = 4, 224
DATA = ("pyarrow", "pandas", "pillow")
"""What Ray Data needs besides, and what decodes photos."""


# the work


def row(number: Any) -> np.ndarray:
    """A row of 160 KB."""
    array = ad.empty((ROW,), np.uint8)
    array.fill(int(number) % 256)
    return array


def element(number: Any) -> np.ndarray:
    """An element of 10 MB."""
    array = ad.empty((ROWS, ROW), np.uint8)
    array.fill(int(number) % 256)
    return array


def batch_of_rows(number: int) -> np.ndarray:
    batch = np.empty((ROWS, ROW), np.uint8)
    for place in range(ROWS):
        batch[place] = row(number * ROWS + place)
    return batch


def plus_one(number: int) -> int:
    return number + 1


def slowly(number: int) -> tuple[int, int]:
    return number + 0 * sum(range(40_000)), os.getpid()


def part_of_rows(number: int) -> list[np.ndarray]:
    return [row(number * ROWS // PARTS + place) for place in range(ROWS // PARTS)]


def photo(name: Any) -> np.ndarray:
    """Return a photo, read and decoded."""
    from PIL import Image

    with Image.open(os.fspath(name)) as image:
        return np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def elements_of(part: Any, count: int) -> ad.Dataset[Any]:
    return ad.Dataset.range(count).map(element)


# the sides


class Making:
    """An actor of Ray that calls a function."""

    def make(self, function: Callable[[int], Any], number: int) -> Any:
        return function(number)


class OnRay:
    """Ray's own calls."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        self.actors = [ray.remote(num_cpus=1)(Making).remote() for _ in range(ACTORS)]

    def __call__(self, function: Callable[[int], Any], count: int, copied: bool = False) -> Iterator[Any]:
        """Yield results in order, with so many calls ahead."""
        calls: deque[Any] = deque()
        for number in range(count):
            calls.append(self.actors[number % ACTORS].make.remote(function, number))
            if len(calls) == ACTORS * AHEAD:
                yield self.result(calls.popleft(), copied)
        while calls:
            yield self.result(calls.popleft(), copied)

    def result(self, call: Any, copied: bool) -> Any:
        value = self.ray.get(call)
        return value.copy() if copied else value


def here(ds: ad.Dataset[Any], **settings: Any) -> Epoch:
    ready = ds.with_options(ad.Options(cluster=ad.Cluster(**settings)))
    return lambda: ready


def joined_rows(on_ray: OnRay, count: int) -> Iterator[Any]:
    """Yield batches of rows that come from Ray in parts."""
    parts = on_ray(part_of_rows, count * PARTS)
    for _ in range(count):
        yield np.stack([array for _ in range(PARTS) for array in next(parts)])


def write_photos(folder: str, count: int) -> list[str]:
    """Write so many photos; return their names."""
    from PIL import Image

    dice = np.random.default_rng(1)
    names: list[str] = []
    for number in range(count):
        coarse = Image.fromarray(dice.integers(0, 256, (47, 63, 3), np.uint8))
        names.append(os.path.join(folder, f"{number:05}.jpg"))
        coarse.resize((500, 375), Image.Resampling.BICUBIC).save(names[-1], quality=90)
    return names


def by_ray_data(names: list[str]) -> Iterator[Any]:
    """Yield batches of photos as Ray Data gives them."""
    import ray

    images = ray.data.read_images(names, size=(SIDE, SIDE), mode="RGB", concurrency=ACTORS)
    for batch in images.iter_batches(batch_size=ROWS, prefetch_batches=2):
        yield batch["image"]


def beside_ray_data(report: Report, count: int, rounds: int) -> None:
    """Compare a job that reads and decodes files."""
    from ray.data import DataContext

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    DataContext.get_current().enable_progress_bars = False
    with tempfile.TemporaryDirectory() as folder:
        names = write_photos(folder, count)
        ds = ad.Dataset.from_list(names).map(photo, num_parallel_calls=ACTORS).batch(ROWS)
        sides = {"asyncdata": here(ds, calls=ACTORS), "Ray": partial(by_ray_data, names)}
        assert sum(map(len, sides["asyncdata"]())) == sum(map(len, sides["Ray"]())) == count
        compare(report, f"{count} JPEG files, beside Ray Data", sides, rounds, None)


def through(epoch: Epoch) -> int:
    count = 0
    for _ in epoch():
        count += 1
    return count


def measured(epoch: Epoch) -> tuple[float, float]:
    """Seconds of an epoch, and of processor time of this process, for each element."""
    clock, used = time.perf_counter(), time.process_time()
    count = through(epoch)
    return (time.perf_counter() - clock) / count, (time.process_time() - used) / count


def by_turns(sides: dict[str, Epoch], rounds: int) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for epoch in sides.values():
        through(epoch)
    for _ in range(rounds):
        for name, epoch in sides.items():
            found[name].append(measured(epoch))
    return found


def compare(report: Report, name: str, sides: dict[str, Epoch], rounds: int, least: float | None) -> None:
    """Add what one kind of work takes on both sides, the median of ratios of turns, and processor time."""
    found = by_turns(sides, rounds)
    ours, theirs = found["asyncdata"], found["Ray"]
    ratio = statistics.median(ray[0] / own[0] for own, ray in zip(ours, theirs, strict=True))
    wall = statistics.median(own for own, _ in ours)
    bar = None if least is None else AtLeast(least)
    samples = {side: [seconds for seconds, _ in runs] for side, runs in found.items()}
    report.add(Row(name, wall * 1e3, "ms", "Ray", wall * ratio * 1e3, bar, samples))
    own, ray = (statistics.median(used for _, used in runs) * 1e3 for runs in (ours, theirs))
    report.add(Row(f"{name}: trainer's processor", own, "ms", "Ray", ray, None if least is None else Below(1.5)))


def longest_wait(epoch: Epoch) -> float:
    """Kill the actor that gave the thousandth element; return the longest wait after that."""
    longest, last, killed = 0.0, 0.0, False
    for place, (_, pid) in enumerate(epoch()):
        now = time.perf_counter()
        if killed:
            longest = max(longest, now - last)
        elif place == 1000:
            os.kill(pid, signal.SIGKILL)
            killed = True
        last = time.perf_counter()
    return longest


def main() -> None:
    arguments = parse_arguments(__doc__ or "")
    if not installed(["ray"]):
        return
    import ray

    ray.init("local", num_cpus=4 * ACTORS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    report = Report("On a Ray cluster of this machine, beside Ray's own calls")
    count, rounds = (8, 1) if arguments.quick else (40, arguments.rounds(7))
    on_ray = OnRay(ray)
    rows = ad.Dataset.range(count * ROWS).map(row, num_parallel_calls=ACTORS).batch(ROWS)
    large = ad.Dataset.range(count).map(element, num_parallel_calls=ACTORS)
    parts = ad.Dataset.range(4).interleave(partial(elements_of, count=count // 4), 2, num_parallel_calls=2)
    for copied, words in ((False, "views"), (True, "own")):
        calls, runs = {"calls": ACTORS, "copy": copied}, {"calls": 0, "runs": ACTORS, "copy": copied}
        for name, ds, settings, function, least in (
            ("rows to batches of 10 MB", rows, calls, batch_of_rows, 0.85),
            ("elements of 10 MB", large, calls, element, 0.70),
            ("elements of 10 MB, whole datasets", parts, runs, element, 0.70),
        ):
            sides = {"asyncdata": here(ds, **settings), "Ray": partial(on_ray, function, count, copied)}
            compare(report, f"{name}, {words}", sides, rounds, None if copied else least)
    apart = rows.with_options(ad.Options(disabled_rules=("map_and_batch_fusion",)))
    sides = {"asyncdata": here(apart, calls=ACTORS), "Ray": partial(joined_rows, on_ray, count)}
    compare(report, "rows joined here to batches of 10 MB, own", sides, rounds, None)
    cheap = ad.Dataset.range(CHEAP).map(plus_one, num_parallel_calls=ACTORS)
    epoch = here(cheap, calls=ACTORS, copy=False)
    through(epoch)
    used = statistics.median(measured(epoch)[1] for _ in range(rounds)) * 1e6
    report.add(Row("cheap elements: trainer's processor", used, "us", "bar", 1.5, AtMost(1)))
    slow = ad.Dataset.range(4000).map(slowly, num_parallel_calls=ACTORS)
    waits = [longest_wait(here(slow, calls=ACTORS, copy=False)) for _ in range(arguments.rounds(3))]
    report.add(Row("longest wait when an actor is killed", statistics.median(waits), "s"))
    del on_ray
    if len(installed(DATA)) == len(DATA):
        beside_ray_data(report, 128 if arguments.quick else 1280, arguments.rounds(3))
    ray.shutdown()
    report.finish(arguments.json)


if __name__ == "__main__":
    main()
