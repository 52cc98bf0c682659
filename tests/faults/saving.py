"""Save a dataset: saving.py FOLDER COUNT; says each element that is computed.

Its lines are long: where the pipe for them is small, it goes on as they are read.
"""

from __future__ import annotations

import os
import sys
import time

import asyncdata as ad


def compute(x: int) -> tuple[int, bytes]:
    os.write(1, f"{f'computed {x}':<399}\n".encode())
    time.sleep(0.001)
    return x, bytes(x)


if __name__ == "__main__":
    ds = ad.Dataset.range(int(sys.argv[2])).shuffle(50).map(compute)
    ds.save(sys.argv[1], "GZIP", shard_func=lambda x, _: x % 3, checkpoint_args={"checkpoint_interval": 10})
    os.write(1, b"done\n")
