"""Batches of 256 images for a trainer on many cores: what its process pays, decoding alone, and training on a GPU.

    python benchmarks/many_cores.py [--device cuda|cpu] [--quick] [--json FILE]

Images of 150 KB that are only filled show what loading costs the trainer's process, also on two cores: its processor
time for an image, the memory of all processes, the first batch, and how much slower a loop in Python becomes that takes
2,000 images a second. Then JPEG files of 60 KB are decoded by as many workers as there are cores, alone and for a
ResNet; the limit of decoding is as many processes that send nothing back. Each loader runs in a process of its own, by
turns. DataLoader, Grain and SPDL are measured where they are installed, ResNets with torchvision on a GPU.

Without a GPU training is not measured; `--device cpu` shows with a small network that that part runs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec
from math import inf
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from harness import AtLeast, AtMost, Report, Row, fresh, installed

import asyncdata as ad
from asyncdata.system.thread_usage import queued

sys.path.insert(0, str(Path(__file__).resolve().parent / "loaders"))

from jpeg import load, write_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ("main",)

QUICK = ["--quick"] if "--quick" in sys.argv else []
BATCH, SHAPE = 16 if QUICK else 256, (224, 224, 3)
RATE = 2000
"""Images a second that the loop in Python takes."""
WARM_UP = 3.0
"""Seconds after which what a trainer takes counts: AUTOTUNE has found its choice by then."""
OF_LIMIT = {"none": 0.97, "resnet18": 0.97, "resnet50": 0.98}
"""Which share of a limit is to be reached."""
OF_DATA_LOADER = {"none": 1.03, "resnet18": 1.06}
PEERS = {"DataLoader": "torch", "Grain": "grain", "SPDL": "spdl"}
OURS = ("asyncdata", "asyncdata, AUTOTUNE")


def fill(number: Any) -> np.ndarray:
    return np.full(SHAPE, int(number) % 251, np.uint8)


# the loaders: batches of the results of a function


def asyncdata(items: Sequence[Any], function: Any, workers: int) -> ad.Dataset[Any]:
    ds = ad.Dataset.from_list(items).map(function, num_parallel_calls=workers, executor="process")
    return ds.batch(BATCH, drop_remainder=True)


def on_the_device(items: Sequence[Any], function: Any, workers: int) -> Iterable[Any]:
    return asyncdata(items, function, workers).prefetch_to_device("cpu")


def autotuned(items: Sequence[Any], function: Any, workers: int) -> Iterable[Any]:
    ds = ad.Dataset.from_list(items).map(function, num_parallel_calls=ad.AUTOTUNE, executor=ad.AUTOTUNE)
    return ds.batch(BATCH, drop_remainder=True)


def data_loader(items: Sequence[Any], function: Any, workers: int) -> Iterable[Any]:
    import torch
    from torch.utils.data import DataLoader, Dataset

    torch.set_num_threads(1)

    class Items(Dataset):
        def __len__(self) -> int:
            return len(items)

        def __getitem__(self, place: int) -> Any:
            return function(items[place])

    return DataLoader(Items(), BATCH, num_workers=workers, drop_last=True)


def grain(items: Sequence[Any], function: Any, workers: int) -> Iterable[Any]:
    import grain
    from absl import flags

    flags.FLAGS.mark_as_parsed()
    options = grain.MultiprocessingOptions(num_workers=workers)
    return grain.MapDataset.source(items).map(function).to_iter_dataset().batch(BATCH).mp_prefetch(options)


def spdl(items: Sequence[Any], function: Any, workers: int) -> Iterator[Any]:
    from spdl.pipeline import PipelineBuilder

    builder = PipelineBuilder().add_source(items).pipe(function, concurrency=workers, output_order="input")
    pipeline = builder.aggregate(BATCH).pipe(np.stack).add_sink(4).build(num_threads=workers + 1)
    with pipeline.auto_stop():
        yield from pipeline.get_iterator()


LOADERS: dict[str, Callable[[Sequence[Any], Any, int], Iterable[Any]]] = {
    **dict(zip((*OURS, *PEERS), (asyncdata, autotuned, data_loader, grain, spdl), strict=True)),
    "prefetch_to_device": on_the_device,
}


# one measurement, in a process of its own


def used_memory() -> float:
    """Return the MB of this process and its descendants, what they share counted once; 0 where that is unknown.

    Shared memory counts by its open files: what DataLoader's workers have made and nobody has taken yet is mapped by no
    process, so that no process's figures contain it.
    """
    private, mapped, files = 0, 0, dict[tuple[int, int], int]()
    for folder in own_processes():
        try:
            lines = (folder / "smaps_rollup").read_text().splitlines()
            found = {line.split()[0]: int(line.split()[1]) for line in lines[1:]}
            for link in (folder / "fd").iterdir():
                if os.readlink(link).startswith(("/memfd:", "/dev/shm/")):
                    told = link.stat()
                    files[told.st_dev, told.st_ino] = told.st_blocks // 2
        except OSError:  # it has ended, or there is no /proc
            continue
        private, mapped = private + found["Pss:"] - found["Pss_Shmem:"], mapped + found["Pss_Shmem:"]
    return (private + max(mapped, sum(files.values()))) / 1024


def own_processes() -> Iterator[Path]:
    """Yield the folders in /proc of this process and its descendants."""
    waiting = [os.getpid()]
    while waiting:
        folder = Path(f"/proc/{waiting.pop()}")
        try:
            for task in (folder / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except OSError:
            continue
        yield folder


def read(
    batches: Iterable[Any], count: int, use: Callable[[Any], object] = id, seconds: float = inf
) -> dict[str, float]:
    """Read so many batches, more than two, or for so many seconds; return what an image cost in the second half, or
    from the third second on, and the first batch."""
    iterator, marks, memory, half = iter(batches), list[tuple[float, float]](), 0.0, 0
    begin = time.perf_counter()
    for place in range(count):
        batch = next(iterator)
        use(batch)
        del batch
        marks.append((time.perf_counter(), time.process_time()))
        since = marks[-1][0] - marks[0][0]
        if not half and (place == count // 2 if seconds == inf else since >= WARM_UP):
            half, memory = place, used_memory()  # costs time of this process: it ends before the next mark begins
            marks[-1] = (time.perf_counter(), time.process_time())
        if since >= seconds:
            break
    (wall, cpu), (end, used) = marks[half], marks[-1]
    images, first = (len(marks) - 1 - half) * BATCH, marks[0][0] - begin
    return {"first": first, "images": images / (end - wall), "cpu": (used - cpu) / images, "memory": memory}


def filled_alone(loader: str, workers: int, count: int) -> dict[str, float]:
    """Read images that are only filled. As many batches again as are read are left, so that no worker runs dry."""
    return read(LOADERS[loader]([*range(2 * count * BATCH)], fill, workers), count)


def decoded_alone(loader: str, folder: str, workers: int, device: str, network: str) -> dict[str, float]:
    """Read decoded JPEG files, and train on them if a `network` is given."""
    count, seconds = (4, inf) if QUICK else (600, 8.0)
    files = [str(path) for path in sorted(Path(folder).iterdir())]
    paths = list(itertools.islice(itertools.cycle(files), 2 * count * BATCH))
    if loader == "limit":
        return {"images": limit(paths[: workers * (16 if QUICK else 2000)], workers)}
    if network == "none":
        return read(LOADERS[loader](paths, load, workers), count, seconds=seconds)
    step = training_step(network, device)
    if loader == "GPU alone":
        return read(itertools.repeat(np.zeros((BATCH, *SHAPE), np.uint8)), count, step, seconds)
    batches: Any = LOADERS[loader](paths, load, workers)
    if device == "cuda" and loader in OURS:
        batches = batches.prefetch_to_device(device)
    elif device == "cuda" and loader == "DataLoader":
        batches.pin_memory = True
    return read(batches, count, step, seconds)


def limit(paths: Sequence[str], workers: int) -> float:
    """Return how many images a second processes decode that send nothing back."""
    with ProcessPoolExecutor(workers, mp_context=get_context("forkserver")) as pool:
        list(pool.map(decode_all, [paths[:1]] * workers))
        seconds: list[float] = []
        for _ in range(2):  # the faster one, as other programs must not make the limit a lower one
            begin = time.perf_counter()
            list(pool.map(decode_all, [paths[part::workers] for part in range(workers)]))
            seconds.append(time.perf_counter() - begin)
        return len(paths) / min(seconds)


def decode_all(paths: Sequence[str]) -> None:
    for path in paths:
        load(path)


def training_step(network: str, device: str) -> Callable[[Any], object]:
    """Return a function that trains on a batch, and waits for it."""
    import torch

    model = small_network(torch) if device == "cpu" else getattr(__import__("torchvision").models, network)()
    model = model.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    labels = torch.zeros(BATCH, dtype=torch.long, device=device)

    def step(batch: Any) -> None:
        images = torch.as_tensor(batch).to(device, non_blocking=True).permute(0, 3, 1, 2)
        with torch.autocast(device, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images.float() / 255), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()

    return step


def small_network(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 4, 7, stride=16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 9)
    )


def share_of_loop(workers: int, seconds: float) -> dict[str, float]:
    """Return which share of its pace a loop in Python loses to a pipeline from which it takes 2,000 images a second."""
    steps = max(2, int(seconds * RATE / BATCH))
    rounds = loop_of(BATCH / RATE)
    batches = iter(asyncdata([*range((4 * steps + 64) * BATCH)], fill, workers))
    for _ in range(4):
        next(batches)
    losses: list[float] = []
    for _ in range(steps):
        alone = turn(rounds)  # nothing is taken: the pipeline is full, and waits
        batch = next(batches)
        del batch
        losses.append(turn(rounds) / alone - 1)  # meanwhile it makes what was taken
    return {"loss": statistics.median(losses)}


def loop_of(seconds: float) -> int:
    """Return how many turns of a loop take so long."""
    return int(100_000 * seconds / min(turn(100_000) for _ in range(5)))


def turn(rounds: int) -> float:
    """Return the seconds of a loop that holds the interpreter lock, without those for which there was no core for it:
    what else runs on this machine would slow any program down."""
    begin, before, number = time.perf_counter(), queued(), 1
    for place in range(rounds):
        number = (number * 31 + place) % 1_000_003
    return time.perf_counter() - begin - (queued() - before)


ALONE: dict[str, Callable[..., dict[str, float]]] = {
    "filled": filled_alone,
    "decoded": decoded_alone,
    "share": share_of_loop,
}


# the table


def medians(runs: Iterable[dict[str, float]]) -> dict[str, float]:
    """Return the median of each figure."""
    found = list(runs)
    return {name: statistics.median(run[name] for run in found) for name in found[0]}


def by_turns(names: Iterable[str], rounds: int, arguments: Callable[[str], Sequence[object]]) -> dict[str, Any]:
    """Measure each of some loaders in turn."""
    runs: dict[str, list[Any]] = {name: [] for name in names}
    for _ in range(rounds):
        for name, some in runs.items():
            some.append(fresh(__file__, "--alone", json.dumps(arguments(name)), *QUICK))
    return {name: medians(some) for name, some in runs.items()}


def filled_by(name: str, workers: int, count: int) -> Sequence[object]:
    """Return the arguments for images that a loader fills."""
    return "filled", name, workers, count


def measure_filled(report: Report, peers: Sequence[str], quick: bool) -> None:
    """Report what loading costs at several numbers of workers."""
    least = 0.0
    for workers in (2,) if quick else (2, 4, 8, 16):
        loaders = ["asyncdata", *(name for name in peers if name == "DataLoader")]
        loaders += ["prefetch_to_device"] if find_spec("torch") and workers in (2, 16) else []
        found = by_turns(loaders, 1 if quick else 3, partial(filled_by, workers=workers, count=4 if quick else 100))
        ours, theirs = found["asyncdata"], found.get("DataLoader", {})
        label, cpu = f"{workers} workers", theirs.get("cpu")
        report.add(Row(f"{label}: trainer, an image", 1e6 * ours["cpu"], "us", "bar", 1.5, AtMost(1)))
        if cpu is not None:
            report.add(Row(f"{label}: trainer, an image", 1e6 * ours["cpu"], "us", "DataLoader", 1e6 * cpu))
        if (sent := found.get("prefetch_to_device")) is not None:
            name = f"{label}: the same, prefetch_to_device"
            report.add(Row(name, 1e6 * sent["cpu"], "us", "bar", 2.5, AtMost(1)))
        report.add(Row(f"{label}: images/s", ours["images"], "1/s", "DataLoader", theirs.get("images")))
        least = least or ours["images"]
        many = workers == 16
        if many:
            report.add(Row("16 workers: an image", 1 / ours["images"], "s", "2 workers", 1 / least, AtLeast(0.9)))
        for name, unit, bar in (("memory", "MB", 1.1), ("first", "s", 1.2)):
            held = AtMost(bar) if many else None
            report.add(Row(f"{label}: {name}", ours[name], unit, "DataLoader", theirs.get(name), held))


def measure_decoded(report: Report, peers: Sequence[str], options: argparse.Namespace) -> None:
    """Report decoding alone, and training."""
    workers = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), 16 if options.quick else 256)
        names = [*OURS, *peers]
        alone = decoded_by(["limit", *names], (folder, workers, "cpu", "none"))
        limit = alone.pop("limit")["images"]
        add_rows(report, "decoding alone", "none", "limit", limit, alone)
        for network in networks(options.device):
            found = decoded_by(["GPU alone", *names], (folder, workers, options.device, network))
            gpu = found.pop("GPU alone")["images"]
            report.add(Row(f"{network}: {options.device} alone", gpu, "1/s"))
            allowed = min(gpu, limit * max(1, workers - 1) / workers)  # the trainer has a core
            add_rows(report, f"{network} on {options.device}", network, "allowed", allowed, found)


def decoded_by(loaders: Sequence[str], given: Sequence[object]) -> dict[str, Any]:
    """Measure loaders that decode, each once."""
    return by_turns(loaders, 1, lambda name: ("decoded", name, *given))


def add_rows(
    report: Report, label: str, network: str, bound: str, limit: float, found: dict[str, dict[str, float]]
) -> None:
    """Report how many images a second each loader gives, ours against the others and against a limit."""
    for name, figures in found.items():
        seconds = 1 / figures["images"]
        if name in OURS:
            bar = AtLeast(OF_LIMIT.get(network, 0.97))
            report.add(Row(f"{label}: {name}", seconds, "s", bound, 1 / limit, bar))
        else:
            report.add(Row(f"{label}: {name}", figures["images"], "1/s"))
        report.add(Row(f"{label}: {name}, an image of the trainer", 1e6 * figures["cpu"], "us"))
        report.add(Row(f"{label}: {name}, first batch", figures["first"], "s"))
    fixed, tuned = (1 / found[name]["images"] for name in OURS)
    report.add(Row(f"{label}: AUTOTUNE", tuned, "s", "processes", fixed, AtLeast(0.95)))
    if (theirs := found.get("DataLoader")) is not None:
        bar, cpu = AtLeast(OF_DATA_LOADER.get(network, 1.0)), found[OURS[0]]["cpu"]
        report.add(Row(f"{label}: asyncdata", fixed, "s", "DataLoader", 1 / theirs["images"], bar))
        report.add(Row(f"{label}: the trainer", 1e6 * cpu, "us", "DataLoader", 1e6 * theirs["cpu"], AtMost(1 / 3)))


def networks(device: str) -> tuple[str, ...]:
    """Return what can be trained here; say so if that is nothing."""
    if device == "cpu":
        return ("small network",) if find_spec("torch") else ()
    if not find_spec("torch") or not __import__("torch").cuda.is_available():
        print("training: not measured, as there is no GPU, or no PyTorch that finds it")
        return ()
    if not find_spec("torchvision"):
        print("training: not measured, as torchvision is not installed")
        return ()
    return ("resnet18", "resnet50")


def main() -> None:
    """Measure what there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--quick", action="store_true", help="one small round: shows that it runs, measures little")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE")
    options = parser.parse_args()
    present = {} if options.quick else installed(PEERS.values())
    peers = [name for name, package in PEERS.items() if package in present]
    report = Report(f"Batches of {BATCH} images on many cores")
    measure_filled(report, peers, options.quick)
    lost = fresh(__file__, "--alone", json.dumps(("share", 2, 0.1 if options.quick else 8)), *QUICK)
    report.add(Row("pace of a loop in Python, 2,000 images/s", 1 + lost["loss"], "x", "alone", 1, AtMost(1.03)))
    measure_decoded(report, peers, options)
    report.finish(options.json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        warnings.simplefilter("ignore")
        kind, *values = json.loads(sys.argv[2])
        print(json.dumps(ALONE[kind](*values)))
    else:
        main()
