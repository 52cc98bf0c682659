"""Read a pipeline in several epochs where the process may open few files; print how each ends, and what is open then.

Usage: descriptors.py LIMIT executor|none current|thread|process rows|files FOLDER EPOCHS
"""

from __future__ import annotations

import gc
import os
import resource
import sys
from pathlib import Path

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


def dataset(source: str, folder: str, executor: str | None) -> ad.Dataset[int]:
    if source == "rows":
        return ad.Dataset.range(COUNT).map(large, 2, executor=executor).map(lambda row: int(row[-1]))
    files = [str(Path(folder, f"{part}.txt")) for part in range(COUNT)]
    lines = ad.TextLineDataset(files, num_parallel_reads=16)
    return lines.map(length, 2, executor=executor)


def main() -> None:
    limit, executor, placement, source, folder, epochs = sys.argv[1:]
    ds = dataset(source, folder, None if executor == "none" else executor)
    ds = ds.with_options(ad.Options(placement=placement))
    soft = min(int(limit), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft))
    for _ in range(int(epochs)):
        try:
            numbers = sorted(ds)
        except (OSError, ad.StageError) as error:
            print("error", error, *getattr(error, "__notes__", ()))
        else:
            print("all" if numbers == list(range(COUNT)) else f"wrong {len(numbers)}")
        gc.collect()
        if int(limit) > FEW:
            print("open", len(os.listdir("/proc/self/fd")))


if __name__ == "__main__":
    main()
