"""What is in flight is bounded in bytes, whatever the transformations ask of each other."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncdata as ad

BIG = 8 << 20
MOST = 6 * (64 << 20) // BIG
"""Each buffer keeps 64 MB at most; no pipeline below has more than a few of them."""


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

    for _ in transform(ad.Dataset.range(600).map(make)):
        pass
    return most, made


@pytest.mark.parametrize(
    "transform",
    [
        lambda ds: ds,
        lambda ds: ds.skip(500),
        lambda ds: ds.shard(100, 99),
        lambda ds: ds.filter(lambda _: False),
        lambda ds: ds.map(lambda x: x, num_parallel_calls=2),
        lambda ds: ds.map(lambda x: x, num_parallel_calls=2).skip(500),
        lambda ds: ds.map(lambda x: x, num_parallel_calls=2, deterministic=False),
        lambda ds: ds.prefetch(ad.AUTOTUNE).map(lambda x: x),
        lambda ds: ds.enumerate().take(500),
        lambda ds: ad.Dataset.sample_from_datasets([ds, ds.map(lambda x: x)], seed=1),
        lambda ds: ad.Dataset.choose_from_datasets([ds, ds], ad.Dataset.range(2).repeat()),
        lambda ds: ds.concatenate(ds).shuffle(seed=1),
    ],
    ids=[
        "plain",
        "skip",
        "shard",
        "filter",
        "parallel map",
        "parallel map, skip",
        "unordered",
        "prefetch",
        "take",
        "sample",
        "choose",
        "parts",
    ],
)
def test_large_elements_in_flight_are_bounded_in_bytes(transform: Any) -> None:
    most, made = alive(transform)
    assert made >= 500
    assert most <= MOST
