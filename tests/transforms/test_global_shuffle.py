"""shuffle without a buffer: a keyed permutation."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import factorial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.transforms.global_shuffle import permuted, permuted_places
from tests.marks import first_by_default
from tests.states import edited

NUMBERS = ad.Dataset.range(100)


@given(size=st.integers(1, 3000), key=st.integers(0, 2**64 - 1))
def test_every_place_is_taken_once(size: int, key: int) -> None:
    assert sorted(permuted(0, size, size, key)) == list(range(size))


@given(size=st.integers(1, 2**62), key=st.integers(0, 2**64 - 1), data=st.data())
def test_any_part_of_any_size_is_a_part_of_the_whole(size: int, key: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, size - 1))
    stop = min(size, start + data.draw(st.integers(1, 50)))
    found = permuted(start, stop, size, key).tolist()
    assert all(0 <= place < size for place in found)
    assert found == [int(permuted(place, place + 1, size, key)[0]) for place in range(start, stop)]


@pytest.mark.parametrize("size", first_by_default([2, 3, 4, 5], 3))
def test_all_orders_are_about_as_likely(size: int) -> None:
    """Chi-square over all orders of a few elements, five standard deviations above what is expected at most."""
    rounds = (200 if size < 5 else 50) * factorial(size)
    counts = Counter(tuple(permuted(0, size, size, key * 0x9E3779B97F4A7C15).tolist()) for key in range(rounds))
    expected, freedom = rounds / factorial(size), factorial(size) - 1
    chi_square = sum((counts[order] - expected) ** 2 for order in counts) / expected
    assert len(counts) == factorial(size)
    assert chi_square < freedom + 5 * (2 * freedom) ** 0.5 + 5


def test_neighbours_are_not_neighbours_any_more() -> None:
    found = list(ad.Dataset.range(10_000).shuffle(seed=1))
    near = sum(abs(a - b) < 100 for a, b in pairwise(found))
    assert 100 < near < 300  # about 2 % of pairs


def test_another_order_each_epoch_unless_told_otherwise() -> None:
    ds, same = NUMBERS.shuffle(seed=1), NUMBERS.shuffle(seed=1, reshuffle_each_iteration=False)
    first, second = list(ds), list(ds)
    assert first != second
    assert sorted(first) == sorted(second) == list(range(100))
    assert list(same) == list(same)
    assert list(NUMBERS.shuffle(seed=1)) == first
    assert list(NUMBERS.shuffle(seed=2)) != first


def test_begins_and_goes_on_anywhere_in_a_very_long_dataset() -> None:
    ds = ad.Dataset.range(10**15).map(lambda x: x, num_parallel_calls=2).shuffle(seed=3)
    first = ds.take(10)
    with ds.iterate() as numbers:
        found = [next(numbers) for _ in range(5)]
        state = numbers.state_dict()
    assert state["position"] == [5, 10**15]
    more = list(first)
    assert more[:5] == found
    assert len(set(more)) == 10
    far = edited(state, position=[10**14, 10**15])
    with ds.iterate(state=far) as numbers:
        assert 0 <= next(numbers) < 10**15


@pytest.mark.parametrize(
    "ds",
    [
        NUMBERS.filter(bool),
        NUMBERS.batch(2),
        NUMBERS.map(lambda x: x, num_parallel_calls=2, deterministic=False),
        NUMBERS.shuffle(5),
        ad.Dataset.from_generator(range, args=(5,)),
        ad.Dataset.counter(),
        NUMBERS.repeat(),
        NUMBERS.flat_map(lambda x: NUMBERS),
    ],
    ids=str,
)
def test_what_has_no_random_access_or_no_end_needs_a_buffer(ds: ad.Dataset[Any]) -> None:
    with pytest.raises(ad.PlanError, match=r"which .* does not have; give a buffer_size"):
        ds.shuffle()


def test_a_map_that_may_be_reordered_runs_after_the_shuffle() -> None:
    mapped = NUMBERS.map(lambda x: x, num_parallel_calls=2).shuffle(seed=1)
    assert "range(100) → shuffle() → map" in mapped.explain()
    in_order = NUMBERS.map(lambda x: x).shuffle(seed=1)
    assert "map(<lambda>) → shuffle()" in in_order.explain()


@pytest.mark.parametrize("place", [-1, 5, 2**63 - 1])
def test_places_of_no_element_are_an_error(place: int) -> None:
    """A damaged state or log may have them."""
    with pytest.raises(ValueError, match="of 5 elements"):
        permuted_places(np.array([0, place]), 5, 1)
