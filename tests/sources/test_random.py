"""Random numbers as a source."""

from __future__ import annotations

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes


def test_the_same_in_each_iteration_or_others() -> None:
    same, other = ad.Dataset.random(seed=1), ad.Dataset.random(seed=1, rerandomize_each_iteration=True)
    assert list(same.take(9)) == list(same.take(9)) == list(ad.Dataset.random(1).take(9))
    taken = other.take(9)
    assert list(taken) != list(taken)
    assert list(same.take(9)) != list(ad.Dataset.random(seed=2).take(9))
    assert list(ad.Dataset.random().take(9)) != list(ad.Dataset.random().take(9))


def test_repetitions_are_the_same_or_others() -> None:
    twice = list(ad.Dataset.random(seed=1).take(5).repeat(2))
    assert twice[:5] == twice[5:]
    anew = list(ad.Dataset.random(1, True).take(5).repeat(2))
    assert anew[:5] != anew[5:]


def test_any_of_them_can_be_had() -> None:
    ds = ad.Dataset.random(seed=3)
    assert ds[1000] == list(ds.take(1001))[-1]
    with ds.iterate() as numbers:
        numbers.skip(10**12)
        assert next(numbers) == ds[10**12]
    assert ds.cardinality() == ad.INFINITE_CARDINALITY
    assert ds.element_spec == ad.TensorSpec((), "int64")


def test_they_are_spread_evenly() -> None:
    numbers = np.array(list(ad.Dataset.random(seed=5).take(100_000)))
    assert numbers.min() >= 0
    assert numbers.max() < 1 << 32
    counts = np.bincount(numbers >> 28, minlength=16)
    assert abs(counts - 6250).max() < 5 * 77  # five standard deviations
    assert abs((numbers & 1).mean() - 0.5) < 0.01


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("seed", [None, 7])
def test_goes_on_with_the_seed_of_the_state(seed: int | None, anew: bool) -> None:
    check_resumes(lambda: ad.Dataset.random(7, anew).take(40).shuffle(5, seed=1).repeat(2))
    with ad.Dataset.random(seed, anew).iterate() as numbers:
        next(numbers)
        state = numbers.state_dict()
        rest = [next(numbers) for _ in range(5)]
    with ad.Dataset.random(seed, anew).iterate(state=state) as numbers:
        assert [next(numbers) for _ in range(5)] == rest


def test_a_list_whose_members_differ_in_shape() -> None:
    ds = ad.Dataset.from_list([([1, 2], "a"), ([3], "b"), (4, "c")])
    assert [(np.size(x), name) for x, name in ds] == [(2, "a"), (1, "b"), (1, "c")]
    assert (len(ds), ds[1][1]) == (3, "b")
    assert repr(ds) == "<Dataset from_list(list of 3)>"
    assert list(ad.Dataset.from_list([])) == []
    with pytest.raises(ad.PlanError, match="from_list needs a list, got 3"):
        ad.Dataset.from_list(3)  # type: ignore[arg-type]
