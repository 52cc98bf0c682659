"""Read a pipeline in several epochs where the process may open few files; print how each ends, and what is open then.

At last more may be opened, and all must be there. Each limit is that of a process of its own.

Usage: descriptors.py LIMIT,LIMIT,... executor|none current|thread|process rows|files WAY FOLDER EPOCHS
"""

from __future__ import annotations

import gc
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import asyncdata as ad

COUNT = 300
FEW = 64
"""With fewer descriptors than this none may be left to count them with."""

LARGE = 20_000
"""Numbers in a result that comes through shared memory."""


def large(number: int) -> npt.NDArray[np.int64]:
    return np.full(LARGE, number)


def length(line: bytes) -> int:
    return int(line)


def shard(number: int) -> int:
    return number % 8


def dataset(source: str, folder: str, executor: str | None) -> ad.Dataset[int]:
    if source == "rows":
        return ad.Dataset.range(COUNT).map(large, 2, executor=executor).map(lambda row: int(row[-1]))
    files = [str(Path(folder, f"{part}.txt")) for part in range(COUNT)]
    lines = ad.TextLineDataset(files, num_parallel_reads=16)
    return lines.map(length, 2, executor=executor)


def all_of(consumer: ad.Consumer[int]) -> list[int]:
    with consumer:  # one that has failed holds the other up no longer
        return list(consumer)


def by_two_threads(ds: ad.Dataset[int]) -> list[int]:
    """Read all elements twice, by two consumers of one iteration."""
    with ExitStack() as stack:
        consumers = ds.tee(2, buffer_size=8)
        for consumer in consumers:
            stack.enter_context(consumer)
        with ThreadPoolExecutor(2) as threads:
            first, second = threads.map(all_of, consumers)
        assert first == second
        return first


def saved(ds: ad.Dataset[int], path: Path) -> ad.Dataset[int]:
    """Save all elements to a folder, unless they are there; return the dataset that reads it."""
    if not path.exists():
        ds.save(str(path), shard_func=shard)
    return ad.Dataset.load(str(path)).with_options(ds.options())


class SavedAgain:
    """Saves all elements to a folder, and reads that; if it failed goes on with that one, else begins another."""

    def __init__(self, ds: ad.Dataset[int], folder: Path) -> None:
        self.ds = ds
        self.folder = folder
        self.number = 0

    def __call__(self) -> list[int]:
        found = list(saved(self.ds, self.folder / f"{self.number}"))
        self.number += 1
        return found


def reading(way: str, ds: ad.Dataset[int], folder: Path) -> Callable[[], list[Any]]:
    """Return what reads all elements, in one of several ways."""
    if way == "tee":
        return lambda: by_two_threads(ds)
    if way == "save":
        return SavedAgain(ds, folder)
    if way == "load":
        saved(ds, folder / "saved")
        return lambda: list(saved(ds, folder / "saved"))
    kept = {"list": ds, "cache": ds.cache(str(folder / "kept")), "snapshot": ds.snapshot(str(folder))}[way]
    return lambda: list(kept)


def ended(read: Callable[[], list[Any]]) -> str:
    """Read all elements, and return how that ended."""
    try:
        numbers = sorted(read())
    except (OSError, ad.StageError) as error:
        return " ".join(["error", str(error), *getattr(error, "__notes__", ())])
    return "all" if numbers == list(range(COUNT)) else f"wrong {len(numbers)}"


def main(limit: int) -> None:
    executor, placement, source, way, folder, epochs = sys.argv[2:]
    ds = dataset(source, folder, None if executor == "none" else executor)
    ds = ds.with_options(ad.Options(placement=placement))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with tempfile.TemporaryDirectory() as place:
        read = reading(way, ds, Path(place))
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, hard), hard))
        for _ in range(int(epochs)):
            print(ended(read))
            gc.collect()
            if limit > FEW:
                print("open", len(os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        print("then", ended(read))


if __name__ == "__main__":
    for each in sys.argv[1].split(","):
        if not (child := os.fork()):  # to import all anew took longer than to read
            main(int(each))
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
