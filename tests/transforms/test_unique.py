from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes, check_transform
from asyncdata.transforms.keyed import NANS
from tests import reference
from tests.laws.pipelines import Offsets
from tests.reference import Boom, Failed
from tests.running import results

STRINGS = getattr(np.dtypes, "StringDType", lambda: "U40")()


@dataclasses.dataclass
class Sample:
    words: Any
    label: int


class Pair(NamedTuple):
    number: Any
    label: int = 1


def test_keeps_its_contract() -> None:
    check_transform(
        lambda ds: ds.unique(),
        reference.unique,
        [(), (1,), (1, 1), range(100), [i * i % 17 for i in range(90)], "abracadabra", [None, b"a", "a", None]],
    )


@pytest.mark.parametrize(
    ("items", "count"),
    [
        ([np.arange(3), np.arange(3), np.arange(4)], 2),
        ([np.arange(3), np.arange(3, dtype="int32")], 2),
        ([np.zeros(4), np.zeros((2, 2))], 2),
        ([np.array(["a", 1], object), np.array(["a", 1], object)], 1),
        ([(1, np.zeros(2)), (1, np.zeros(2)), (2, np.zeros(2))], 2),
        ([{"a": 1, "b": [2]}, {"b": [2], "a": 1}, {"a": 1}], 2),
        ([[1, 2], [1, 2], (1, 2)], 2),
        ([np.array([name * 40], STRINGS) for name in "aabb"], 2),
        ([np.array([1065353216], "i4").view([("a", kind)]) for kind in ("i4", "f4", "f4")], 2),
        ([np.ma.array([1, hidden], mask=[False, True]) for hidden in (2, 3)], 1),
        ([Sample([1], 2), Sample([1], 2), Sample([1], 3)], 2),
        ([1, 1.0, np.int64(1), np.float32(1), True], 1),
        (["1", 1, b"1"], 3),
    ],
    ids=str,
)
def test_what_is_the_same(items: list[Any], count: int) -> None:
    assert len(list(ad.Dataset.from_iterable(items).unique())) == count


@pytest.mark.parametrize("placement", ["thread", "process"])
@pytest.mark.parametrize("kind", [float, np.float32, np.datetime64, np.timedelta64])
def test_nan_is_equal_to_nan_also_where_it_is_another_object(kind: Any, placement: Any) -> None:
    first, second = (kind("nan"), kind("nan")) if kind in (float, np.float32) else (kind("NaT", "s"), kind("NaT", "D"))
    for part in (lambda x: x, lambda x: (x, 1), Pair, lambda x: [x], lambda x: {"x": x}):
        elements = [part(one) for one in (first, first, second)]
        options = ad.Options(placement=placement)
        assert len(list(ad.Dataset.from_iterable(elements).unique().with_options(options))) == 1


def test_the_first_of_equal_elements_is_given() -> None:
    assert [type(x) for x in ad.Dataset.from_iterable([1.0, 1, 2, 2.0]).unique()] == [float, int]


def test_a_failure_has_its_place() -> None:
    def fail_at_2(x: int) -> int:
        if x == 2:
            raise Boom(x)
        return x // 3

    assert results(ad.Dataset.range(7).map(fail_at_2).unique()) == [0, Failed("Boom(2)"), 1, 2]


def test_what_cannot_be_compared_is_a_failure_in_its_place() -> None:
    ds = ad.Dataset.from_iterable([1, {1}, 1, 2]).unique()
    assert results(ds) == [1, Failed("TypeError"), 2]
    with pytest.raises(TypeError) as caught:
        list(ds)
    assert "in unique(), element 1" in caught.value.__notes__


def test_an_endless_input() -> None:
    ds = ad.Dataset.counter().map(lambda x: x % 7).unique()
    assert list(ds.take(7)) == [0, 1, 2, 3, 4, 5, 6]
    assert ds.cardinality() == ad.UNKNOWN_CARDINALITY
    assert len(ad.Dataset.range(0).unique()) == 0


def squares() -> ad.Dataset:
    return ad.Dataset.range(90).map(lambda x: x * x % 31)


def test_goes_on_anywhere() -> None:
    check_resumes(lambda: squares().unique())
    check_resumes(lambda: squares().filter(lambda x: x % 3).unique().shuffle(4, seed=2))
    assert "unique() reads again what came before" in squares().unique().explain()


def test_goes_on_where_no_order_is_promised() -> None:
    check_resumes(
        lambda: ad.Dataset.range(90).map(lambda x: x * x % 31, num_parallel_calls=4, deterministic=False).unique(),
        ordered=False,
    )


def test_goes_on_after_a_stream_that_can_be_read_once() -> None:
    items = [x * x % 31 for x in range(90)]
    check_resumes(lambda: ad.Dataset.from_iterable(Offsets(items)).unique())


def test_what_cannot_be_compared_and_is_held_fails_again() -> None:
    check_resumes(lambda: ad.Dataset.range(20).map(lambda x: {x} if x % 3 == 1 else x % 7).unique().shuffle(3, seed=1))


def after_two(once: Any) -> list[Any]:
    """Read two elements of what can be read once, and go on in another like it."""
    with ad.Dataset.from_iterable(once()).unique().iterate() as elements:
        assert [next(elements) for _ in range(2)] == [3, 1]
        state = elements.state_dict()
    return list(ad.Dataset.from_iterable(once()).unique().iterate(state=state))


def test_an_iterator_that_can_be_read_once_is_read_once() -> None:
    assert after_two(lambda: iter([3, 3, 1, 3, 2, 1, 4])) == [2, 4]


def test_an_iterator_that_has_a_state_goes_on() -> None:
    assert after_two(lambda: Offsets([3, 3, 1, 3, 2, 1, 4])) == [2, 4]


def test_what_stands_for_nat_has_a_unit() -> None:
    """NumPy 2.5 warns of a NaT without one."""
    assert [np.datetime_data(NANS[kind])[0] for kind in (np.datetime64, np.timedelta64)] == ["s", "s"]
