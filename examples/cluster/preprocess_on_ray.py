"""Preprocessing on a Ray cluster: on this machine with `ray.init()`, elsewhere with `ray.init("ray://head:10001")`
or inside a Ray job, without other changes. A run that was stopped also resumes without the cluster.

    pip install 'asyncdata[ray]'
    python examples/cluster/preprocess_on_ray.py
"""

from __future__ import annotations

import os

import numpy as np
import ray

import asyncdata as ad


def augment(number: int) -> tuple[int, np.ndarray]:
    """A slow function of pure Python and NumPy, called on the workers."""
    dice = np.random.default_rng(number)
    return os.getpid(), np.sort(dice.random((64, 64)), axis=0).astype(np.float32)


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="WARNING")
    here = ad.Dataset.range(200).shuffle(50, seed=1).map(augment, num_parallel_calls=4).batch(8)
    there = here.with_options(ad.Options(cluster=ad.Cluster(calls=2)))
    print(there.explain().splitlines()[3])

    with there.iterate() as batches:
        first = [next(batches) for _ in range(10)]
        state = batches.state_dict()
    workers = {int(pid) for pids, _ in first for pid in pids} - {os.getpid()}
    print(f"10 batches from {len(workers)} other processes")

    with here.iterate(state=state) as batches:  # without Ray
        rest = list(batches)
    with here.iterate(epoch=0) as batches:
        expected = list(batches)
    same = all((one[1] == other[1]).all() for one, other in zip([*first, *rest], expected, strict=True))
    print(f"10 batches there and {len(rest)} here are those of a local run: {same}")
    ray.shutdown()


if __name__ == "__main__":
    main()
