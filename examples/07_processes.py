"""Python code on all the cores: worker processes, and what happens when one dies."""

from __future__ import annotations

import os

import numpy as np

import asyncdata as ad

HERE = os.getpid()


def simulate(number: int) -> tuple[int, np.ndarray]:
    """Pure Python, which threads would run one after the other; element 7 ends its process."""
    if number == 7 and os.getpid() != HERE:
        os._exit(3)
    total = 0
    for place in range(20_000):
        total += place * number % 7
    return os.getpid(), np.full((100, 100), total)


ds = ad.Dataset.range(12).map(simulate, num_parallel_calls=2, executor="process")
pids = set[int]()
elements = iter(ds)
for number in range(12):
    try:
        pid, picture = next(elements)
    except ad.WorkerCrashed as error:
        print(f"element {number}: {error} ({error.__notes__[0]})")
    else:
        assert pid != HERE
        assert (picture == picture[0, 0]).all()
        pids.add(pid)
print(f"11 elements, in order, from {len(pids)} other processes")

tuned = ad.Dataset.range(20_000).map(lambda number: number + 1, executor=ad.AUTOTUNE)
with tuned.iterate() as numbers:
    print("sum", sum(numbers))
    print("AUTOTUNE:", numbers.stats().tuned[0]["why"])
