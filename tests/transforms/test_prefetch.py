from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_transform
from tests.reference import Boom, Failed
from tests.running import WAYS


@pytest.mark.parametrize("size", [0, 1, 2, 7, 1000, ad.AUTOTUNE, None])
def test_keeps_its_contract(size: int | None) -> None:
    check_transform(lambda ds: ds.prefetch(size), lambda items: items)


@pytest.mark.parametrize("size", [0, 1, 5, ad.AUTOTUNE])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_failures_in_place(size: int, way: Any) -> None:
    def fail_at_2(x: int) -> int:
        if x == 2:
            raise Boom(x)
        return x

    assert way(ad.Dataset.range(5).map(fail_at_2).prefetch(size)) == [0, 1, Failed("Boom(2)"), 3, 4]


def test_many_in_a_row() -> None:
    ds = ad.Dataset.range(2000)
    for size in (1, 2, 3, ad.AUTOTUNE, 50):
        ds = ds.prefetch(size)
    assert list(ds) == list(range(2000))


def test_in_the_middle() -> None:
    ds = ad.Dataset.range(100).prefetch(3).map(lambda x: x + 1).prefetch(ad.AUTOTUNE).batch(10).prefetch(1)
    assert [batch.sum() for batch in ds] == [batch.sum() for batch in np.arange(1, 101).reshape(10, 10)]


def test_large_elements() -> None:
    ds = ad.Dataset.range(6).map(lambda x: np.full(1 << 22, x, np.uint8)).prefetch(ad.AUTOTUNE)
    assert [int(element[-1]) for element in ds] == list(range(6))


def test_infinite_input() -> None:
    assert list(ad.Dataset.counter().prefetch(10).take(3)) == [0, 1, 2]


@pytest.mark.parametrize("size", [-2, -5, 1.5, "2"])
def test_wrong_sizes_are_refused_where_they_are_given(size: Any) -> None:
    with pytest.raises(ad.PlanError, match="buffer_size"):
        ad.Dataset.range(1).prefetch(size)


def test_cardinality_is_kept() -> None:
    assert len(ad.Dataset.range(3).prefetch(1)) == 3
