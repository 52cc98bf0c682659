from __future__ import annotations

from typing import Any

import pytest

import asyncdata as ad
from asyncdata.testing import check_transform
from tests.reference import Boom, Failed
from tests.running import WAYS, read_plain


def fail_at(place: int) -> Any:
    def fail(x: int) -> int:
        if x == place:
            raise Boom(x)
        return x

    return fail


def test_keeps_its_contract() -> None:
    check_transform(
        lambda ds: ad.Dataset.zip(ds, ad.Dataset.range(20)),
        lambda items: zip(items, range(20), strict=False),
    )


def test_the_shortest_decides() -> None:
    short, long, endless = ad.Dataset.range(2), ad.Dataset.range(5), ad.Dataset.counter()
    assert list(ad.Dataset.zip(long, short, endless)) == [(0, 0, 0), (1, 1, 1)]
    assert list(ad.Dataset.zip(ad.Dataset.range(0), endless)) == []


def test_one_dataset_gives_its_bare_elements() -> None:
    assert list(ad.Dataset.zip(ad.Dataset.range(3))) == [0, 1, 2]


def test_structures_of_datasets() -> None:
    one, two = ad.Dataset.range(2), ad.Dataset.range(10, 12)
    assert list(ad.Dataset.zip((one, two))) == [(0, 10), (1, 11)]
    assert list(ad.Dataset.zip({"a": one, "b": (two, one)})) == [{"a": 0, "b": (10, 0)}, {"a": 1, "b": (11, 1)}]


def test_a_dataset_with_itself() -> None:
    ds = ad.Dataset.range(3)
    assert list(ad.Dataset.zip(ds, ds.map(lambda x: x * 2))) == [(0, 0), (1, 2), (2, 4)]


def test_tuples_nest() -> None:
    pairs = ad.Dataset.zip(ad.Dataset.range(2), ad.Dataset.range(2))
    assert list(ad.Dataset.zip(pairs, ad.Dataset.range(2))) == [((0, 0), 0), ((1, 1), 1)]


@pytest.mark.parametrize("how", [{}, {"num_parallel_calls": 3}], ids=str)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_failure_takes_its_partners_with_it(how: dict[str, Any], way: Any) -> None:
    one = ad.Dataset.range(5).map(fail_at(1), **how)
    two = ad.Dataset.range(5).map(fail_at(3), **how)
    assert way(ad.Dataset.zip(one, two)) == [(0, 0), Failed("Boom(1)"), (2, 2), Failed("Boom(3)"), (4, 4)]


def test_when_both_fail_neither_error_is_lost_from_sight() -> None:
    def fail(x: int) -> int:
        raise Boom(x)

    def fail_otherwise(x: int) -> int:
        raise KeyError(x)

    ds = ad.Dataset.zip(ad.Dataset.range(1).map(fail), ad.Dataset.range(1).map(fail_otherwise))
    with pytest.raises(Boom):
        list(ds)


def test_blocks_of_different_sizes() -> None:
    uneven = ad.Dataset.range(500).filter(lambda x: x % 7 < 3)
    expected = list(zip([x for x in range(500) if x % 7 < 3], range(400), strict=False))
    assert list(ad.Dataset.zip(uneven, ad.Dataset.range(400).prefetch(3))) == expected


def test_left_early_all_inputs_are_closed() -> None:
    closed: list[int] = []

    def generate(name: int) -> Any:
        try:
            while True:
                yield name
        finally:
            closed.append(name)

    one, two = (ad.Dataset.from_generator(generate, args=(name,)) for name in (1, 2))
    assert read_plain(ad.Dataset.zip(one, two).take(2)) == [(1, 2), (1, 2)]
    assert sorted(closed) == [1, 2]


@pytest.mark.parametrize("wrong", [[], [[]], [3], [()]])
def test_what_is_no_dataset_is_refused_where_it_is_given(wrong: list[Any]) -> None:
    with pytest.raises((ad.PlanError, TypeError)):
        ad.Dataset.zip(*wrong)


def test_a_list_of_datasets_is_refused_as_in_tf_data() -> None:
    with pytest.raises((ad.PlanError, TypeError)):
        ad.Dataset.zip([ad.Dataset.range(1), ad.Dataset.range(1)])  # type: ignore[arg-type]


def test_cardinality() -> None:
    ten, endless, unknown = ad.Dataset.range(10), ad.Dataset.counter(), ad.Dataset.range(9).filter(bool)
    assert len(ad.Dataset.zip(ten, ad.Dataset.range(3), endless)) == 3
    assert ad.Dataset.zip(endless, endless).cardinality() == ad.INFINITE_CARDINALITY
    assert ad.Dataset.zip(ten, unknown).cardinality() == ad.UNKNOWN_CARDINALITY
