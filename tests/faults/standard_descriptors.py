"""Run pipelines in processes that began without some standard descriptors; the exit status says how they ended.

Their functions print to them, as libraries do.

Usage: standard_descriptors.py [inline] [thread] [files] [process] [placement]
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import asyncdata as ad

COUNT = 20
EXPECTED = [*range(1, COUNT + 1)]


def add_one(number: int) -> int:
    for descriptor in (1, 2):
        os.write(descriptor, b"what a library prints\n")
    return number + 1


def pipeline(way: str, folder: Path) -> ad.Dataset[int]:
    if way == "files":
        path = folder / "numbers.txt"
        path.write_text("".join(f"{number}\n" for number in range(COUNT)))
        return ad.TextLineDataset([str(path)]).map(int).map(add_one)
    ds = ad.Dataset.range(COUNT)
    if way in {"inline", "placement"}:
        ds = ds.map(add_one)
    else:
        ds = ds.map(add_one, 2, executor="process" if way == "process" else "thread")
    return ds.with_options(ad.Options(placement="process")) if way == "placement" else ds


def main(way: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        ds = pipeline(way, Path(folder))
        for _ in range(2):
            if list(ds) != EXPECTED:
                return 3
        (shard,) = ds.write_jsonl(Path(folder, "written"))
        return 0 if [*map(int, Path(shard).read_text().split())] == EXPECTED else 4


if __name__ == "__main__":
    for each in sys.argv[1:]:
        if not (child := os.fork()):  # to import all anew took longer than to read
            sys.exit(main(each))
        if status := os.waitpid(child, 0)[1]:
            sys.exit(f"{each}: {os.waitstatus_to_exitcode(status)}")
