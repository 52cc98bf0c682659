from __future__ import annotations

from typing import Any

import pytest

import asyncdata as ad
from asyncdata.testing import check_transform
from tests.reference import Boom, Failed
from tests.running import WAYS


def test_keeps_its_contract() -> None:
    check_transform(lambda ds: ds.concatenate(ad.Dataset.range(3)), lambda items: [*items, 0, 1, 2])


def test_after_something_without_end_nothing_comes() -> None:
    ds = ad.Dataset.counter().concatenate(ad.Dataset.range(3))
    assert list(ds.take(3)) == [0, 1, 2]
    assert ds.cardinality() == ad.INFINITE_CARDINALITY


def test_a_long_chain() -> None:
    ds = ad.Dataset.range(0)
    for number in range(50):
        ds = ds.concatenate(ad.Dataset.range(number, number + 1))
    assert list(ds) == list(range(50))


def test_with_itself() -> None:
    ds = ad.Dataset.range(2)
    assert list(ds.concatenate(ds)) == [0, 1, 0, 1]


def test_the_second_starts_when_the_first_has_ended() -> None:
    events: list[str] = []

    def generate(name: str) -> Any:
        events.append(f"{name} starts")
        yield name
        events.append(f"{name} ends")

    one, two = (ad.Dataset.from_generator(generate, args=(name,)) for name in "ab")
    assert list(one.concatenate(two)) == ["a", "b"]
    assert events == ["a starts", "a ends", "b starts", "b ends"]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_failures_in_place(way: Any) -> None:
    def generate() -> Any:
        yield 0
        raise Boom("end")

    ds = ad.Dataset.from_generator(generate).concatenate(ad.Dataset.range(2))
    assert way(ds) == [0, Failed("Boom('end')"), 0, 1]


def test_what_is_no_dataset_is_refused_where_it_is_given() -> None:
    with pytest.raises((ad.PlanError, TypeError)):
        ad.Dataset.range(1).concatenate([1])  # type: ignore[arg-type]


def test_cardinality() -> None:
    assert len(ad.Dataset.range(3).concatenate(ad.Dataset.range(4))) == 7
    assert ad.Dataset.range(3).concatenate(ad.Dataset.counter()).cardinality() == ad.INFINITE_CARDINALITY
    assert ad.Dataset.range(3).filter(bool).concatenate(ad.Dataset.range(1)).cardinality() == ad.UNKNOWN_CARDINALITY
