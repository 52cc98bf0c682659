"""DataLoader of `asyncdata.torch` against PyTorch's: the same datasets, arguments and batches, by turns.

    python benchmarks/loaders/dataloader.py [--quick] [--json FILE]

Each loader runs each job in a process of its own. The first batch is timed from building the loader in a process that
has imported both; the others in the third epoch, when all is warm. A trainer's processor time is that of all threads
of its process. The JPEG files have 500 x 375 pixels. A dataset that holds 500 MB is timed from building the loader to
its twentieth batch; then the memory of all processes is taken, what they share counted once, and the most that a
worker has for itself.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtLeast, AtMost, Bar, Report, Row, fresh, installed, parse_arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("main",)

WORKERS = 2
BARS = {"JPEG files": 1.3, "elements of 150 KB": 5.0, "batches of 1,000 small tuples": 1.5}
HELD: dict[str, tuple[int, str]] = {
    "500 MB in the dataset": (500, "array"),
    "500 MB in shared memory": (500, "shared"),
    "2 GB in shared memory": (2000, "shared"),
    "2 GB in a mapped file": (2000, "file"),
}
"""For each job that holds data the MB, and where they are."""


class Photographs:
    """JPEG files, decoded and cropped to 224 x 224 pixels."""

    def __init__(self, files: Sequence[str], count: int) -> None:
        self.files = files
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        import torch
        from PIL import Image

        image = Image.open(self.files[index % len(self.files)])
        pixels = np.asarray(image)[75:299, 138:362]
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy()).float().div_(255), index % 10


class Elements:
    """Arrays of 150 KB that take no time to make."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        import torch

        return torch.full((150_000,), index % 256, dtype=torch.uint8)


class Pairs:
    """Tuples of two numbers."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, index * 0.5


class Rows:
    """Rows of a large array that the dataset holds."""

    def __init__(self, megabytes: int, where: str, folder: str) -> None:
        import torch

        shape = (megabytes * 100, 10_000)
        if where == "file":
            file = Path(folder, "rows.npy")
            np.lib.format.open_memmap(file, "w+", np.uint8, shape)  # of zeros, which take no space on the disk
            self.array = np.load(file, mmap_mode="r")
            return
        array = torch.ones(shape, dtype=torch.uint8)
        self.array = (array.share_memory_() if where == "shared" else array).numpy()

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: int) -> Any:
        return self.array[index].copy()


def write_photographs(folder: Path) -> list[str]:
    """Write a hundred JPEG files of 500 x 375 pixels."""
    from PIL import Image

    random = np.random.default_rng(0)
    files: list[str] = []
    for number in range(100):
        coarse = random.integers(0, 256, (47, 63, 3), np.uint8)
        image = Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC)
        noisy = np.clip(np.asarray(image, np.int16) + random.integers(-12, 13, (375, 500, 3)), 0, 255).astype(np.uint8)
        file = folder / f"{number}.jpg"
        Image.fromarray(noisy).save(file, quality=80)
        files.append(str(file))
    return files


def job_of(name: str, folder: str, quick: bool) -> tuple[Any, dict[str, Any]]:
    """Return the dataset of a job, and its arguments."""
    if name == "JPEG files":
        files = sorted(map(str, Path(folder).glob("*.jpg")))
        return Photographs(files, 320 if quick else 1600), {"batch_size": 32, "shuffle": True}
    if name == "elements of 150 KB":
        return Elements(200 if quick else 3000), {"batch_size": None}
    return Pairs(20_000 if quick else 300_000), {"batch_size": 1000, "shuffle": True}


def measure(side: str, name: str, folder: str, quick: bool) -> dict[str, float]:
    """Run a job; return seconds to the first batch, and for each batch of the third epoch seconds and processor
    seconds of this process."""
    import torch.utils.data

    import asyncdata.torch

    warnings.simplefilter("ignore")
    dataset, given = job_of(name, folder, quick)
    kind = asyncdata.torch.DataLoader if side == "asyncdata" else torch.utils.data.DataLoader
    begin = time.perf_counter()
    loader = kind(dataset, num_workers=WORKERS, **given)
    batches = iter(loader)
    next(batches)
    first = time.perf_counter() - begin
    for _ in batches:
        pass
    for worker in loader.workers() if side == "asyncdata" else ():
        worker.wait_for_start()
    for _ in loader:
        pass
    count, before, begin = 0, processor_seconds(), time.perf_counter()
    for _ in loader:
        count += 1
    return {
        "first": first,
        "batch": (time.perf_counter() - begin) / count,
        "processor": (processor_seconds() - before) / count,
    }


def measure_held(side: str, name: str, folder: str, quick: bool) -> dict[str, float]:
    """Return seconds to the twentieth batch of a dataset that holds data; then the MB of all processes, and those that
    a worker has for itself."""
    import torch.utils.data

    import asyncdata.torch
    from asyncdata.cli.compare import memory_of_all

    megabytes, where = HELD[name]
    dataset = Rows(megabytes // 10 if quick else megabytes, where, folder)
    kind = asyncdata.torch.DataLoader if side == "asyncdata" else torch.utils.data.DataLoader
    begin = time.perf_counter()
    loader = kind(dataset, 32, shuffle=True, num_workers=WORKERS)
    batches = iter(loader)
    for _ in range(20):
        next(batches)
    passed = time.perf_counter() - begin
    for worker in loader.workers() if side == "asyncdata" else ():
        worker.wait_for_start()
    for _ in range(20):
        next(batches)
    private = max(private_memory(child.pid or 0) for child in multiprocessing.active_children())
    return {"twentieth": passed, "memory": memory_of_all() / 1e6, "private": private / 1e6}


def private_memory(process: int) -> int:
    """Return the bytes that a process has for itself, without what it has of files that were not written; 0 if the
    system does not say."""
    file = Path("/proc", str(process), "smaps_rollup")
    lines = file.read_text().splitlines() if file.exists() else []
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_Dirty:"))


def processor_seconds() -> float:
    """Return the processor time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def compare_held(rounds: int, quick: bool, report: Report) -> None:
    """Measure the jobs that hold data by turns, and add their rows."""
    for name, (megabytes, where) in HELD.items():
        found: dict[str, list[dict[str, float]]] = {"asyncdata": [], "DataLoader": []}
        with tempfile.TemporaryDirectory() as folder:
            for side in [*found] * rounds:
                found[side].append(fresh(__file__, side, name, folder, int(quick)))

        def add(what: str, unit: str, limit: float, most: float | None, name: str = name, found: Any = found) -> None:
            samples = {side: [run[what] for run in runs] for side, runs in found.items()}
            ours, theirs = map(statistics.median, samples.values())
            against, reference = ("DataLoader", theirs) if most is None else ("limit", most)
            report.add(Row(f"{name}: {what}", ours, unit, against, reference, AtMost(limit), samples))

        if where == "file":
            add("private", "MB", 1.0, 50.0)
            continue
        add("memory", "MB", 1.1, None)  # missed with 500 MB: see "Worker processes" in docs/design.md
        if megabytes == 500:
            add("twentieth", "s", 1.0, None)


def main() -> None:
    arguments = parse_arguments(__doc__ or "")
    if not {"torch", "pillow"} <= installed(["torch", "pillow"]).keys():
        return
    report = Report("DataLoader")

    def compare(name: str, folder: str, rows: dict[str, tuple[str, str, Bar | None]]) -> None:
        """Measure a job by turns, and add its rows: what was measured, their titles, units and bars."""
        found: dict[str, list[dict[str, float]]] = {"asyncdata": [], "DataLoader": []}
        for _ in range(arguments.rounds(5)):
            for side, runs in found.items():
                runs.append(fresh(__file__, side, name, folder, int(arguments.quick)))
        for what, (title, unit, limit) in rows.items():
            samples = {side: [run[what] for run in runs] for side, runs in found.items()}
            ours, theirs = map(statistics.median, samples.values())
            report.add(Row(name + title, ours, unit, "DataLoader", theirs, limit, samples))

    with tempfile.TemporaryDirectory() as folder:
        write_photographs(Path(folder))
        for name, bar in BARS.items():
            times = {"batch": ("", AtLeast(bar)), "first": (": first batch", AtMost(1.2))}
            times["processor"] = ": trainer's processor", AtMost(0.5)
            compare(name, folder, {what: (title, "s", limit) for what, (title, limit) in times.items()})
    compare_held(arguments.rounds(5), arguments.quick, report)
    report.finish(arguments.json)


if __name__ == "__main__":
    if sys.argv[1:2] in (["asyncdata"], ["DataLoader"]):
        side, name, folder, quick = sys.argv[1:]
        run = measure_held if name in HELD else measure
        print(json.dumps(run(side, name, folder, quick == "1")))
    else:
        main()
