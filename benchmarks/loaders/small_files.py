"""Files of 64 KB in the page cache, read by `map(ad.read_file)`, against a plain loop of `open` and `read`.

python benchmarks/loaders/small_files.py [--quick] [--json FILE]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aiofiles
import numpy as np

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtMost, Report, Row, alternate, parse_arguments

__all__ = ("main",)

KILOBYTES = 64


def write(folder: Path, count: int) -> list[str]:
    """Write the files, and return their paths."""
    random = np.random.default_rng(0)
    paths = [folder / f"{number:05}" for number in range(count)]
    for path in paths:
        path.write_bytes(random.bytes(KILOBYTES << 10))
    return [*map(str, paths)]


def by_hand(paths: Sequence[str]) -> None:
    """Read them one after the other."""
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            file.read()


async def content(path: str) -> bytes:
    """Read a file as a user's own coroutine does."""
    async with aiofiles.open(path, "rb") as file:
        return await file.read()


def exhausted(ds: ad.Dataset[bytes]) -> Callable[[], Any]:
    """A run in which the consumer gets every file."""

    def run() -> None:
        for _ in ds:
            pass

    return run


def main() -> None:
    """Measure one after the other, several at once, and names that are listed."""
    arguments = parse_arguments(__doc__ or "")
    report = Report("Files of 64 KB: microseconds for one")
    with tempfile.TemporaryDirectory() as folder:
        paths = write(Path(folder), 400 if arguments.quick else 4000)
        names = ad.Dataset.from_tensor_slices(paths)
        listed = ad.Dataset.list_files(f"{folder}/*", seed=0)
        runs = {
            "map(read_file)": names.map(ad.read_file),
            "map(read_file, num_parallel_calls=8)": names.map(ad.read_file, num_parallel_calls=8),
            "map(content, num_parallel_calls=8), by aiofiles": names.map(content, num_parallel_calls=8),
            "list_files, map(read_file, AUTOTUNE)": listed.map(ad.read_file, num_parallel_calls=ad.AUTOTUNE),
        }
        contenders = {name: lambda ds=ds: exhausted(ds) for name, ds in runs.items()}
        samples = alternate({"loop": lambda: lambda: by_hand(paths), **contenders}, arguments.rounds(9))
        micros = {name: some.median / len(paths) * 1e6 for name, some in samples.items()}
        bars = {"map(read_file)": AtMost(1 / 0.6)}
        for name in runs:
            seconds = {name: samples[name].seconds}
            report.add(Row(name, micros[name], "us", "plain loop", micros["loop"], bars.get(name), seconds))
    report.finish(arguments.json)


if __name__ == "__main__":
    main()
