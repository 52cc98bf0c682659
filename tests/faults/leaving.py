"""Read one element and leave.

Usage: leaving.py plain|async thread|current busy|blocked|blocked_source return|exit|raise|global
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from typing import Any

import asyncdata as ad

world, placement, pipeline, leave = sys.argv[1:]
kept: list[Any] = []


def block(x: int) -> int:
    """Return for the first element alone."""
    if x > 0:
        time.sleep(3600)
    return x


def generate() -> Iterator[int]:
    yield 0
    time.sleep(3600)


async def later(x: int) -> int:
    await asyncio.sleep(0)
    return x


def dataset() -> ad.Dataset:
    made = {
        "busy": lambda: ad.Dataset.counter().map(later, num_parallel_calls=4).map(abs, num_parallel_calls=2),
        "blocked": lambda: ad.Dataset.counter().map(block, num_parallel_calls=2),
        "blocked_source": lambda: ad.Dataset.from_generator(generate),
    }
    return made[pipeline]().prefetch(3).with_options(ad.Options(placement=placement))


def left() -> None:
    """Leave with the iterator alive, in one of several ways."""
    if leave == "exit":
        sys.exit(3)
    if leave == "raise":
        raise RuntimeError("consumer")


def plain() -> None:
    elements = iter(dataset())
    if leave == "global":
        kept.append(elements)
    print("read", next(elements), flush=True)
    left()


async def in_a_loop() -> None:
    elements = aiter(dataset())
    if leave == "global":
        kept.append(elements)
    print("read", await anext(elements), flush=True)
    left()


if world == "plain":
    plain()
else:
    asyncio.run(in_a_loop())
