"""Sources and pipelines that never end, for tests of what happens when they are left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncdata as ad

__all__ = ("Endless", "Forever", "busy", "hang")


class Endless:
    """An async iterable that never ends, and knows whether it was closed."""

    def __init__(self, pause: float = 0.0) -> None:
        self.closed = 0
        self.pause = pause
        self.begun = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[int]:
        number = 0
        self.begun.set()
        try:
            while True:
                await asyncio.sleep(self.pause)
                yield number
                number += 1
        finally:
            self.closed += 1


class Forever:
    """A generator function that never ends, and knows whether it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    def __call__(self) -> Iterator[int]:
        number = 0
        try:
            while True:
                yield number
                number += 1
        finally:
            self.closed += 1


async def hang(x: Any) -> Any:
    """Never return."""
    await asyncio.Event().wait()


async def slowly(x: Any) -> Any:
    await asyncio.sleep(0)
    return x


def busy(placement: Any = "thread") -> ad.Dataset:
    """A pipeline with every kind of task and thread in it, that never ends."""
    return (
        ad.Dataset.zip(ad.Dataset.from_generator(Forever()), ad.Dataset.counter())
        .map(lambda a, b: a + b, num_parallel_calls=2)
        .map(slowly, num_parallel_calls=3)
        .prefetch(2)
        .interleave(lambda x: ad.Dataset.from_tensors(x).repeat(3), cycle_length=3, num_parallel_calls=2)
        .shuffle(4)
        .batch(2)
        .with_options(ad.Options(placement=placement))
    )
