"""Random numbers as a source: a hash of each one's place."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes
from tests import reference
from tests.running import WAYS


def drawn(count: int, *args: Any, **kwargs: Any) -> list[int]:
    return list(ad.Dataset.random(*args, **kwargs).take(count))


@pytest.mark.parametrize("seed", [0, 1, -1, 1 << 70])
def test_every_number_below_two_to_the_32nd_is_as_likely(seed: int) -> None:
    numbers = np.array(drawn(40_000, seed))
    counts = np.bincount(numbers >> 28, minlength=16)
    assert len(counts) == 16
    assert ((counts - 2500) ** 2 / 2500).sum() < 45  # chi squared of 15 degrees of freedom: one in 10,000 is above
    for bit in range(32):
        assert abs(int((numbers >> bit & 1).sum()) - 20_000) < 500


def test_numbers_are_plain_integers_without_end() -> None:
    ds = ad.Dataset.random(3)
    assert {type(x) for x in islice(ds, 100)} == {int}
    assert ds.cardinality() == ad.INFINITE_CARDINALITY
    assert ds.element_spec == ad.TensorSpec((), "int64")
    with pytest.raises(TypeError):
        len(ds)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_numbers_are_the_same_however_they_are_read(way: Any) -> None:
    assert way(ad.Dataset.random(5).take(300)) == reference.random(300, 5, ())


def test_each_iteration_repeats_the_numbers_unless_told_otherwise() -> None:
    for seed in (None, 7):
        ds = ad.Dataset.random(seed).take(5)
        assert list(ds) == list(ds) == list(ds.repeat(2))[5:]
        anew = ad.Dataset.random(seed, rerandomize_each_iteration=True).take(5)
        first, second = list(anew), list(anew)
        turns = list(anew.repeat(2))
        assert len({tuple(numbers) for numbers in (first, second, turns[:5], turns[5:])}) == 4


def test_seeds_tell_numbers_from_each_other_and_no_seed_is_another_each_time() -> None:
    assert drawn(3, 1) == drawn(3, 1)
    assert len({tuple(drawn(3, seed)) for seed in (0, 1, 2, None, None)}) == 5


def test_any_number_can_be_had_at_once() -> None:
    ds, numbers = ad.Dataset.random(2), drawn(50, 2)
    assert [ds[place] for place in (0, 49, 7)] == [numbers[0], numbers[49], numbers[7]]
    with ds.iterate() as elements:
        elements.skip(10**12)
        assert next(elements) == ds.at(10**12)
    assert sorted(ds.take(50).shuffle(seed=3)) == sorted(numbers)


@pytest.mark.parametrize("anew", [False, True])
def test_goes_on_from_any_number(anew: bool) -> None:
    check_resumes(lambda: ad.Dataset.random(1, anew).take(40))
    check_resumes(lambda: ad.Dataset.random(1, anew).shuffle(7, seed=2).take(40).batch(3).repeat(2))


def test_goes_on_with_the_seed_of_the_state() -> None:
    ds = ad.Dataset.random()
    numbers = list(ds.take(20))
    with ds.iterate() as elements:
        assert list(islice(elements, 10)) == numbers[:10]
        state = json.loads(json.dumps(elements.state_dict()))
    assert list(islice(ad.Dataset.random().iterate(state=state), 10)) == numbers[10:]


def test_a_seed_that_is_no_integer_is_refused() -> None:
    with pytest.raises(ad.PlanError, match=r"random\(seed=\) must be an integer, got 1\.5"):
        ad.Dataset.random(1.5)  # type: ignore[arg-type]
