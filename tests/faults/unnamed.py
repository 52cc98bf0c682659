"""Be killed just before what is whole gets its name: unnamed.py cache|save PATH INPUT; or not: with `named` behind it.

Says each element that is computed, and each that is read.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import asyncdata as ad


def say(words: str) -> None:
    """Print a line in one piece: two threads do."""
    os.write(1, f"{words}\n".encode())


def compute(x: int) -> int:
    say(f"computed {x}")
    return x * x


INPUTS: dict[str, Callable[[], ad.Dataset[int]]] = {
    "ordered": lambda: ad.Dataset.range(10).map(compute),
    "shuffled": lambda: ad.Dataset.range(10).shuffle(10).map(compute),
    "unordered": lambda: ad.Dataset.range(10).map(compute, num_parallel_calls=2, deterministic=False),
    "generated": lambda: ad.Dataset.from_generator(lambda: map(compute, range(10))),
    "empty": lambda: ad.Dataset.range(0).map(compute),
}


def dying(rename: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Return what is killed before it gives something the name that was asked for."""

    def renamed(old: Any, new: Any) -> None:
        if str(new) == sys.argv[2]:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(old, new)

    return renamed


if __name__ == "__main__":
    if "named" not in sys.argv:
        os.replace, os.rename = dying(os.replace), dying(os.rename)
    ds = INPUTS[sys.argv[3]]()
    if sys.argv[1] == "save":
        ds.save(sys.argv[2])
    else:
        for element in ds.cache(sys.argv[2]):
            say(f"read {element}")
