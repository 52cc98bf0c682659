"""A killed run resumes in another process, with other parallelism, as if nothing had happened."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import numpy as np

import asyncdata as ad


def augment(x, rng):
    return x, int(rng.integers(100))  # belongs to the element: the same after a resume


def pipeline(workers):
    return ad.Dataset.range(1_000).shuffle(seed=1).map(augment, workers, rng=True, seed=2).batch(50).prefetch(4)


def train(path, workers, most):
    state = ad.checkpoint.load(path) if os.path.exists(path) else None
    with pipeline(workers).iterate(state=state) as batches:
        for step, (numbers, noise) in enumerate(batches):
            print(*numbers, *noise)
            ad.checkpoint.save(path, batches.state_dict())
            if step + 1 == most:
                os._exit(1)  # like SIGKILL: nothing is cleaned up


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
        sys.exit()
    path = os.path.join(tempfile.mkdtemp(), "state.json")
    legs = [("1", "7"), ("4", "6"), ("2", "1000")]
    commands = [[sys.executable, "-u", __file__, path, *leg] for leg in legs]
    read = [subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout for command in commands]
    print("batches of each process:", [len(lines.splitlines()) for lines in read])
    resumed = b"".join(read).split()
    whole = [number for batch in pipeline(3) for number in np.concatenate(batch)]
    print("as if nothing had happened:", list(map(int, resumed)) == whole)
    print(ad.checkpoint.inspect_state(ad.checkpoint.load(path)))
