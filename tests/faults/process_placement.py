# A program with its pipeline in another process, and without `if __name__ == "__main__"`: process_placement.py WHAT.

from __future__ import annotations

import sys

import numpy as np

import asyncdata as ad

what = sys.argv[1]


def work(number: int) -> np.ndarray:
    return np.full(50_000, number)


ds = ad.Dataset.counter().map(work, 2, executor="process").with_options(ad.Options(placement="process"))
with ds.iterate() as elements:
    for expected, element in zip(range(3), elements):
        assert element[0] == expected
    try:
        print("ready", flush=True)
        for _ in elements:
            pass
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    next(elements)
    print("went on", flush=True)
