from __future__ import annotations

from typing import Any

import pytest

import asyncdata as ad
from asyncdata.testing import check_transform
from tests.reference import Boom, Failed
from tests.running import WAYS


@pytest.mark.parametrize("start", [0, 1, -5, 10**12])
def test_keeps_its_contract(start: int) -> None:
    check_transform(lambda ds: ds.enumerate(start), lambda items: enumerate(items, start))


def test_counts_are_plain_integers() -> None:
    ((count, _),) = ad.Dataset.range(1).enumerate()
    assert type(count) is int


def test_pairs_are_unpacked_by_the_next_map() -> None:
    assert list(ad.Dataset.from_iterable("ab").enumerate().map(lambda i, x: f"{i}{x}")) == ["0a", "1b"]


def test_a_tuple_stays_whole_inside_the_pair() -> None:
    assert list(ad.Dataset.from_iterable([("a", "b")]).enumerate()) == [(0, ("a", "b"))]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_failure_is_counted(way: Any) -> None:
    def fail_at_1(x: int) -> int:
        if x == 1:
            raise Boom(x)
        return x

    assert way(ad.Dataset.range(3).map(fail_at_1).enumerate()) == [(0, 0), Failed("Boom(1)"), (2, 2)]


def test_it_starts_again_with_each_epoch() -> None:
    ds = ad.Dataset.range(2).enumerate()
    assert list(ds) == list(ds) == [(0, 0), (1, 1)]
    assert list(ds.repeat(2)) == [(0, 0), (1, 1)] * 2
    assert list(ad.Dataset.range(2).repeat(2).enumerate()) == [(0, 0), (1, 1), (2, 0), (3, 1)]


@pytest.mark.parametrize("start", [1.5, None, "1"])
def test_wrong_starts_are_refused_where_they_are_given(start: Any) -> None:
    with pytest.raises(ad.PlanError, match="start"):
        ad.Dataset.range(1).enumerate(start)


def test_cardinality_is_kept() -> None:
    assert len(ad.Dataset.range(3).enumerate()) == 3
