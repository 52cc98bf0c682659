from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_transform
from asyncdata.transforms.shuffle import Exchanges, slots
from tests import reference
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import WAYS, results


@pytest.mark.parametrize("size", first_by_default([100, 5000, 1, 2, 10, ad.UNKNOWN_CARDINALITY]))
def test_keeps_its_contract(size: int) -> None:
    check_transform(
        lambda ds: ds.shuffle(size, seed=3, reshuffle_each_iteration=False),
        lambda items: reference.shuffle(items, size, 3, ()),
        [(), (1,), range(10), range(300), range(700 if 0 < size < 100 else 3000)],
    )


def test_nothing_is_lost_or_repeated_without_a_seed() -> None:
    assert Counter(ad.Dataset.range(1000).shuffle(64)) == Counter(range(1000))


def test_without_a_seed_two_datasets_differ() -> None:
    orders = {tuple(ad.Dataset.range(100).shuffle(100)) for _ in range(3)}
    assert len(orders) == 3


def test_with_a_seed_two_datasets_agree() -> None:
    orders = {tuple(ad.Dataset.range(100).shuffle(100, seed=1)) for _ in range(3)}
    assert len(orders) == 1


def test_each_iteration_has_another_order() -> None:
    ds = ad.Dataset.range(100).shuffle(100, seed=1)
    orders = [tuple(ds) for _ in range(4)]
    assert len(set(orders)) == 4
    again = ad.Dataset.range(100).shuffle(100, seed=1)
    assert [tuple(again) for _ in range(4)] == orders


@pytest.mark.parametrize("seed", [5, None])
def test_without_reshuffling_each_iteration_has_the_same_order(seed: int | None) -> None:
    ds = ad.Dataset.range(100).shuffle(100, seed=seed, reshuffle_each_iteration=False)
    assert len({tuple(ds) for _ in range(3)}) == 1
    turns = list(ds.repeat(2))
    assert turns[:100] == turns[100:]


def test_a_buffer_of_one_keeps_the_order() -> None:
    assert list(ad.Dataset.range(50).shuffle(1, seed=0)) == list(range(50))


@pytest.mark.parametrize("size", [2, 10, 30])
def test_an_element_comes_no_sooner_than_the_buffer_allows(size: int) -> None:
    for place, element in enumerate(ad.Dataset.range(200).shuffle(size, seed=0)):
        assert element <= place + size


def test_seeds_differ() -> None:
    orders = {tuple(ad.Dataset.range(100).shuffle(50, seed=seed)) for seed in range(20)}
    assert len(orders) == 20


def test_every_position_is_about_as_likely() -> None:
    """The first element of 8 shuffled whole, over 800 seeds: 100 times each, give or take 5 deviations."""
    firsts = Counter(next(iter(ad.Dataset.range(8).shuffle(8, seed=seed))) for seed in range(800))
    assert all(50 <= firsts[element] <= 150 for element in range(8)), firsts


@pytest.mark.parametrize("size", [3, 10, 100])
@pytest.mark.parametrize("count", [None, 3])
def test_shuffle_and_repeat_keep_epochs_apart(size: int, count: int | None) -> None:
    ds = ad.Dataset.range(10).shuffle(size, seed=0).repeat(count).take(30)
    turns = list(ds)
    for start in (0, 10, 20):
        assert sorted(turns[start : start + 10]) == list(range(10))
    assert turns[:10] != turns[10:20]
    assert turns == list(ad.Dataset.range(10).shuffle(size, seed=0).repeat(count).take(30).with_options(PLAIN))


PLAIN = ad.Options(optimize=False)


@pytest.mark.parametrize("ahead", [0, 1, 8, 64])
def test_an_inner_shuffle_depends_on_its_element_and_not_on_how_that_came(ahead: int) -> None:
    """A batch is the same element whether it came at once or piece by piece."""
    ds = ad.Dataset.range(40).filter(lambda x: x != 9).prefetch(ahead).batch(8)
    found = list(ds.flat_map(lambda part: ad.Dataset.from_tensor_slices(part).shuffle(8, seed=1)))
    at_once = ad.Dataset.range(40).filter(lambda x: x != 9).batch(8)
    assert found == list(at_once.flat_map(lambda part: ad.Dataset.from_tensor_slices(part).shuffle(8, seed=1)))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_failures_are_shuffled_as_elements(way: Any) -> None:
    def fail_on_odd(x: int) -> int:
        if x % 2:
            raise Boom(x)
        return x

    expected = list(reference.shuffle(reference.map_(range(20), fail_on_odd), 7, 1, (0,)))
    assert way(ad.Dataset.range(20).map(fail_on_odd).shuffle(7, seed=1)) == expected


def test_any_elements_can_be_shuffled() -> None:
    items: list[Any] = [None, "a", (1, 2), {"k": [1]}, b""]
    found = results(ad.Dataset.from_iterable(items).shuffle(3, seed=0))
    assert Counter(map(repr, found)) == Counter(map(repr, items))
    assert not any(isinstance(element, Failed) for element in found)


def test_numbers_stay_what_they_are_beside_rows_of_arrays() -> None:
    """A buffer that holds rows of an array is no place for Python's numbers: they would come out as NumPy's."""
    ds = ad.Dataset.from_tensor_slices(np.zeros(20, np.int64)).concatenate(ad.Dataset.from_iterable([0, 0, None]))
    found = Counter(type(element).__name__ for element in ds.shuffle(6, seed=0))
    assert found == {"int64": 20, "int": 2, "NoneType": 1}


@pytest.mark.parametrize("dtype", [">i4", ">f8", ">U2", "<i4"])
def test_the_byte_order_of_rows_of_a_file_stays(tmp_path: Path, dtype: str) -> None:
    np.save(tmp_path / "a.npy", np.arange(40).reshape(20, 2).astype(dtype))
    ds = ad.NpyDataset(tmp_path / "a.npy")
    assert {row.dtype for row in ds.shuffle(6, seed=0)} == {row.dtype for row in ds} == {np.dtype(dtype)}


def test_infinite_input() -> None:
    found = list(ad.Dataset.counter().shuffle(10, seed=0).take(20))
    assert len(set(found)) == 20
    assert max(found) < 30


def test_a_buffer_larger_than_memory_costs_only_what_is_in_it() -> None:
    assert sorted(ad.Dataset.range(10).shuffle(10**15, seed=0)) == list(range(10))


@pytest.mark.parametrize("size", [0, -1, -5, 2.5, "3"])
def test_wrong_sizes_are_refused_where_they_are_given(size: Any) -> None:
    with pytest.raises(ad.PlanError, match="buffer_size"):
        ad.Dataset.range(3).shuffle(size)


@pytest.mark.parametrize("seed", [0, -1, 2**63, 2**80])
def test_any_integer_is_a_seed(seed: int) -> None:
    assert sorted(ad.Dataset.range(5).shuffle(5, seed=seed)) == list(range(5))


def test_cardinality_is_kept() -> None:
    assert len(ad.Dataset.range(7).shuffle(3)) == 7


@pytest.mark.parametrize("size", [1, 2, 40, 1000, 1 << 16, 70_000])
@pytest.mark.parametrize("count", [1, 31, 32, 500, 3000])
def test_a_block_is_exchanged_as_its_elements_are(size: int, count: int) -> None:
    """Numbers in arrays and the same as objects, from few slots in which all meet to many in which few do."""
    numbers, objects = np.arange(size), list(range(size))
    for turn in range(4):
        places, values = slots(turn * count, (turn + 1) * count, size, 5), np.arange(count) + size * 10 * (turn + 1)
        swap = Exchanges(places, size)
        assert swap.of(numbers, values).tolist() == swap.of(objects, values.tolist())
        assert numbers.tolist() == objects


@pytest.mark.parametrize("kind", ["numbers", "rows", "objects", "filtered"])
@pytest.mark.parametrize("size", [1, 50, 2000])
def test_what_is_many_is_shuffled_as_it_is_meant(kind: str, size: int) -> None:
    rows = ad.Dataset.from_tensor_slices(np.arange(5000) * 1.0)
    ds = {
        "numbers": ad.Dataset.range(5000),
        "rows": rows,
        "objects": ad.Dataset.from_iterable([*map(str, range(5000))]),
        "filtered": rows.filter(lambda x: x % 7 != 0),
    }[kind]
    found = list(ds.shuffle(size, seed=3, reshuffle_each_iteration=False))
    assert found == list(reference.shuffle(list(ds), size, 3, ()))


@pytest.mark.parametrize("seed", [-(1 << 63) - 1, -(1 << 64), 1.5, "1"])
def test_a_seed_is_an_integer_of_64_bits(seed: Any) -> None:
    assert sorted(ad.Dataset.range(5).shuffle(3, seed=-(1 << 63))) == [*range(5)]
    with pytest.raises(ad.PlanError, match=r"shuffle\(seed=\) must be"):
        ad.Dataset.range(5).shuffle(3, seed=seed)
