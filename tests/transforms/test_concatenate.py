from __future__ import annotations

from contextlib import closing
from functools import reduce
from itertools import islice
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


def in_one_call(parts: list[ad.Dataset[Any]]) -> ad.Dataset[Any]:
    return parts[0].concatenate(*parts[1:])


def one_by_one(parts: list[ad.Dataset[Any]]) -> ad.Dataset[Any]:
    return reduce(lambda before, part: before.concatenate(part), parts)


@pytest.mark.parametrize("chain", [in_one_call, one_by_one])
def test_a_long_chain(chain: Any) -> None:
    """No part lies deeper than another one: Python's limit for recursion is 1,000."""
    ds = chain([ad.Dataset.range(number, number + 2) for number in range(1500)])
    expected = [number + place for number in range(1500) for place in (0, 1)]
    assert list(ds) == expected
    assert (len(ds), ds[-1], ds.explain().splitlines()[0] != "") == (3000, 1500, True)
    assert sorted(ds.shuffle(seed=1)) == sorted(expected)
    iterator = iter(ds)
    assert [next(iterator) for _ in range(2001)] == expected[:2001]
    resumed = ds.iterate(state=iterator.state_dict())
    iterator.close()
    assert list(resumed) == expected[2001:]


def test_states_do_not_depend_on_how_a_chain_was_written() -> None:
    parts = [ad.Dataset.range(3), ad.Dataset.range(4), ad.Dataset.range(5)]
    states: list[Any] = []
    for ds in (in_one_call(parts), one_by_one(parts)):
        with closing(iter(ds)) as iterator:
            list(islice(iterator, 8))
            states.append(iterator.state_dict())
    assert states[0] == states[1]


def test_the_odd_one_of_several_is_named() -> None:
    words = "elements of the first are .*, of number 3 .*; map one to the structure of the other"
    with pytest.raises(ad.PlanError, match=words):
        ad.Dataset.range(1).concatenate(ad.Dataset.range(1), ad.Dataset.from_list([(1, 2)]))


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
