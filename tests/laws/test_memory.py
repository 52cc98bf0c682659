"""What is in flight is bounded in bytes, whatever the transformations ask of each other."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

import asyncdata as ad
from tests.marks import first_by_default

BIG = 8 << 20
BUDGET = 256 << 20
MOST = BUDGET // BIG + 16
"""The budget, and what no buffer has that tunes itself: two for each call asked for, and what is on its way."""


def alive(transform: Callable[[ad.Dataset[Any]], ad.Dataset[Any]]) -> tuple[int, int]:
    """Return how many big arrays there were at once at most, and how many were made."""
    living: set[int] = set()
    made = most = 0

    def make(number: int) -> Any:
        nonlocal made, most
        array = np.zeros(BIG, np.uint8)  # pages that nobody touches cost nothing
        made += 1
        living.add(number)
        weakref.finalize(array, living.discard, number)
        most = max(most, len(living))
        return array

    for _ in transform(ad.Dataset.range(600).map(make)).with_options(ad.Options(ram_budget=BUDGET)):
        pass
    return most, made


TRANSFORMS: dict[str, Callable[[ad.Dataset[Any]], ad.Dataset[Any]]] = {
    "parts": lambda ds: ds.concatenate(ds).shuffle(seed=1),
    "unordered": lambda ds: ds.map(lambda x: x, num_parallel_calls=2, deterministic=False),
    "skip": lambda ds: ds.skip(500),
    "prefetch": lambda ds: ds.prefetch(ad.AUTOTUNE).map(lambda x: x),
    "plain": lambda ds: ds,
    "shard": lambda ds: ds.shard(100, 99),
    "filter": lambda ds: ds.filter(lambda _: False),
    "parallel map": lambda ds: ds.map(lambda x: x, num_parallel_calls=2),
    "parallel map, skip": lambda ds: ds.map(lambda x: x, num_parallel_calls=2).skip(500),
    "take": lambda ds: ds.enumerate().take(500),
    "sample": lambda ds: ad.Dataset.sample_from_datasets([ds, ds.map(lambda x: x)], seed=1),
    "choose": lambda ds: ad.Dataset.choose_from_datasets([ds, ds], ad.Dataset.range(2).repeat()),
}


@pytest.mark.parametrize("name", first_by_default([*TRANSFORMS], 2))
def test_large_elements_in_flight_are_bounded_in_bytes(name: str) -> None:
    most, made = alive(TRANSFORMS[name])
    assert made >= 500
    assert most <= MOST


class Held:
    """Arrays of a megabyte by the clock of a single loop: how many were made and not given out yet, at most."""

    def __init__(self) -> None:
        self.made = self.out = self.most = 0
        self.array = np.zeros(1 << 20, np.uint8)

    def make(self, _: Any) -> Any:
        self.made += 1
        self.most = max(self.most, self.made - self.out)
        return self.array

    async def awaited(self, _: Any) -> Any:
        for _ in range(12):  # slower than its reader, until that pauses
            await asyncio.sleep(0)
        return self.make(_)


Shape: TypeAlias = Callable[[Held], ad.Dataset[Any]]

SHAPES: dict[str, tuple[Shape, int]] = {
    "prefetch": (lambda held: ad.Dataset.range(1200).map(held.awaited).prefetch(), 2),
    "two of them": (lambda held: ad.Dataset.range(1200).map(held.awaited).prefetch().enumerate().prefetch(), 4),
    "tasks": (lambda held: ad.Dataset.range(1200).map(held.awaited, ad.AUTOTUNE).prefetch(), 18),
    "interleave": (
        lambda held: (
            ad.Dataset.range(8)
            .interleave(lambda _: ad.Dataset.range(150).map(held.awaited), 4, num_parallel_calls=ad.AUTOTUNE)
            .prefetch()
        ),
        4 * 4 + 2,
    ),
}
"""Pipelines, and how many elements they hold at least: one in each buffer and one on its way to it."""


def most_held(shape: Shape, budget: int | None) -> tuple[int, int]:
    """Return how many were held at once at most, and how many came, for a consumer that pauses and then takes a lot."""

    async def body() -> tuple[int, int]:
        held = Held()
        ds = shape(held).with_options(ad.Options(placement="current", ram_budget=budget))
        async with ds.iterate() as elements:
            while True:
                for _ in range(2000):  # everything runs that can run
                    await asyncio.sleep(0)
                try:
                    for _ in range(2 * (held.made - held.out) + 1):
                        await anext(elements)
                        held.out += 1
                except StopAsyncIteration:
                    return held.most, held.out

    return asyncio.run(body())


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("megabytes", first_by_default([24, 1, 80]))
def test_what_buffers_hold_together_is_within_the_budget(name: str, megabytes: int) -> None:
    shape, least = SHAPES[name]
    most, came = most_held(shape, megabytes << 20)
    assert came == 1200
    assert most <= max(megabytes, least)


@pytest.mark.parametrize("name", SHAPES)
def test_with_a_larger_budget_more_is_held(name: str) -> None:
    shape, _ = SHAPES[name]
    assert most_held(shape, 400 << 20)[0] > 80
