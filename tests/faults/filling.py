"""Fill a cache in a file: filling.py FILE COUNT DELAY; says each element that is computed, and each that is read.

Its lines are long: where the pipe for them is small, it goes on as they are read.
"""

from __future__ import annotations

import os
import sys
import time

import asyncdata as ad


def say(words: str) -> None:
    """Print a line in one piece: two threads do."""
    os.write(1, f"{words:<99}\n".encode())


def compute(x: int) -> int:
    say(f"computed {x}")
    time.sleep(float(sys.argv[3]))
    return x * x


def pipeline(path: str, count: int) -> ad.Dataset:
    """Shuffle without a seed: each process by itself would have another order."""
    return ad.Dataset.range(count).shuffle(count).map(compute).cache(path)


if __name__ == "__main__":
    for element in pipeline(sys.argv[1], int(sys.argv[2])):
        say(f"read {element}")
    say("done")
