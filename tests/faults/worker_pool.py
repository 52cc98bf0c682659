# Programs with worker processes and without `if __name__ == "__main__"`, to be killed or left: worker_pool.py WHAT.

from __future__ import annotations

import os
import sys
import time

import numpy as np

import asyncdata as ad

print("main", flush=True)
what = sys.argv[1]


def work(number: int) -> np.ndarray:
    if what == "stuck" and number == 3:
        time.sleep(3600)
    return np.full(1 << 20 if what == "retained" else 50_000, number)


ds = ad.Dataset.range(1000).repeat().map(work, 2, executor="process")
with ds.iterate() as elements:
    for _, element in zip(range(3), elements):
        print(element[0], flush=True)
    try:
        print("ready", flush=True)
        if what in {"run", "interrupted"}:
            for _ in elements:
                pass
        elif what == "retained":
            kept = [element for _, element in zip(range(20), elements)]
            print(sum(int(element[-1]) for element in kept), sum(element.nbytes for element in kept) >> 20, flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
print("memfd", hasattr(os, "memfd_create"), flush=True)
