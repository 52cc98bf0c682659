from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes, check_transform
from tests import reference
from tests.reference import Boom, Failed
from tests.running import WAYS, results

STRINGS = getattr(np.dtypes, "StringDType", lambda: "U40")()


def last_digit(x: int) -> int:
    return x % 10


@pytest.mark.parametrize("most", [None, 1, 3, 10])
def test_keeps_its_contract(most: int | None) -> None:
    check_transform(lambda ds: ds.distinct(last_digit, most), lambda items: reference.distinct(items, last_digit, most))


def odd_arrays() -> list[Any]:
    """Arrays whose bytes are not their values, each twice: of strings, of fields apart, of long doubles, with masks."""
    apart = np.dtype([("a", "i1"), ("b", "i8")], align=True)
    noise = np.frombuffer(bytes(range(32)), apart).copy()
    noise["a"] = noise["b"] = 0
    fields: list[Any] = [np.zeros(2, apart), noise, np.ones(2, [("a", "i4")]), np.ones(2, [("a", "i4")])]
    fields += [np.array([0x3F800000] * 2, "i4").view([("a", kind)]) for kind in ("f4", "f4", "i4", "i4")]
    masks: list[Any] = [np.ma.array([1, hidden], mask=[False, is_masked]) for hidden, is_masked in HIDDEN]
    long = [np.array([1], np.longdouble), np.array([1], np.longdouble)]
    strings = [np.array([name * 40], STRINGS) for name in "aabb"]
    return [*strings, *fields, *masks, *long]


HIDDEN = [(2, True), (3, True), (2, False)]


@pytest.mark.parametrize(
    ("items", "kept"),
    [
        ([1, 1.0, True, np.int8(1), np.float32(1)], 1),
        ([0, False, 0.0, -0.0, None, "", b"", ()], 5),
        (["a", b"a", ("a",), {"a": 1}], 4),
        ([(1, 2), (12,), ("1", 2), (1, "2"), ((1,), 2)], 5),
        ([("a", "bc"), ("ab", "c")], 2),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2, "b": 1}], 2),
        ([np.zeros(2), np.zeros(2), np.zeros((2, 1)), np.zeros(2, np.int8)], 3),
        ([np.array(["a", None], object), np.array(["a", None], object), np.array(["b", None], object)], 2),
        ([2**80, 2**80 + 1, float("inf"), float("-inf"), float("nan"), float("nan")], 5),
        ([0.1, np.float64(0.1), np.float32(0.1)], 2),
        (["\ud800", "\ud801"], 2),
        ([np.array(3), 3, np.array("a"), "a", np.array("a", object)], 2),
        ([np.longdouble(1) / 3, np.float64(np.longdouble(1) / 3), np.longdouble(1) / 2, 0.5, np.longdouble(2), 2], 4),
        (odd_arrays(), 9),
    ],
    ids=repr,
)
def test_what_is_equal_is_the_same_key(items: list[Any], kept: int) -> None:
    assert len(list(ad.Dataset.from_iterable(items).distinct())) == kept


def test_the_first_element_of_a_key_is_kept() -> None:
    items = [{"id": 1, "n": 0}, {"id": 2, "n": 1}, {"id": 1, "n": 2}]
    assert [x["n"] for x in ad.Dataset.from_iterable(items).distinct(lambda x: x["id"])] == [0, 1]


def test_a_tuple_is_unpacked() -> None:
    assert list(ad.Dataset.from_iterable([(1, 2), (1, 3), (2, 2)]).distinct(lambda a, b: a)) == [(1, 2), (2, 2)]
    assert list(ad.Dataset.from_iterable([(1, 2), (1, 3), (1, 2)]).distinct()) == [(1, 2), (1, 3)]


def test_the_oldest_keys_are_forgotten() -> None:
    assert list(ad.Dataset.from_iterable("abacab").distinct(max_keys=2)) == ["a", "b", "c", "a", "b"]


@pytest.mark.parametrize("most", [1, 7, 100])
def test_long_streams_are_as_the_meaning_says(most: int) -> None:
    numbers = [random.Random(most).randrange(150) for _ in range(3000)]
    expected = list(reference.distinct(numbers, lambda x: x, most))
    assert list(ad.Dataset.from_iterable(numbers).distinct(max_keys=most)) == expected


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_key_that_fails_fails_in_place(way: Any) -> None:
    def key(x: int) -> int:
        if x == 2:
            raise Boom(x)
        return x % 2

    assert way(ad.Dataset.range(5).distinct(key)) == [0, 1, Failed("Boom(2)")]


def test_failures_of_the_input_pass_and_change_no_key() -> None:
    def fail(x: int) -> int:
        if x % 4 == 1:
            raise Boom(x)
        return x % 3

    found = results(ad.Dataset.range(12).map(fail).prefetch(12).distinct())
    assert found == [0, Failed("Boom(1)"), 2, 1, Failed("Boom(5)"), Failed("Boom(9)")]


@pytest.mark.parametrize("odd", [object(), 1j, np.datetime64(1, "s"), np.timedelta64(1, "s"), np.timedelta64(1, "ns")])
def test_what_cannot_be_a_key_fails_in_place_and_says_what_to_do(odd: Any) -> None:
    ds = ad.Dataset.from_iterable([1, odd, 2]).distinct()
    assert results(ds) == [1, Failed("StructureError"), 2]
    with pytest.raises(ad.StructureError, match=f"{type(odd).__name__} cannot be a key.*key function"):
        list(ds)


def test_a_coroutine_function_is_awaited() -> None:
    async def key(x: int) -> int:
        await asyncio.sleep(0)
        return x % 3

    assert list(ad.Dataset.range(9).distinct(key)) == [0, 1, 2]


def test_infinite_input() -> None:
    assert list(ad.Dataset.counter().distinct(lambda x: x // 1000).take(2)) == [0, 1000]


@pytest.mark.parametrize("most", [None, 1, 4])
def test_goes_on_with_what_it_remembers(most: int | None) -> None:
    def build() -> ad.Dataset[Any]:
        return ad.Dataset.range(80).map(lambda x: x * x % 23).distinct(max_keys=most)

    check_resumes(build)
    check_resumes(lambda: build().shuffle(4, seed=1).batch(2))


def test_an_element_that_failed_and_is_held_fails_again() -> None:
    def build() -> ad.Dataset[Any]:
        return ad.Dataset.range(20).distinct(lambda x: 7 // (x % 5)).shuffle(3, seed=1)

    check_resumes(build)
    check_resumes(lambda: build().batch(2))


def test_a_state_has_sixteen_characters_for_each_key() -> None:
    with ad.Dataset.range(2000).distinct().iterate() as elements:
        for _ in range(1000):
            next(elements)
        assert 16_000 <= len(json.dumps(elements.state_dict())) < 16_400


def test_cardinality_is_unknown() -> None:
    assert ad.Dataset.range(3).distinct().cardinality() == ad.UNKNOWN_CARDINALITY
    assert ad.Dataset.range(0).distinct().cardinality() == 0


@pytest.mark.parametrize("most", [0, -1, 1.5])
def test_numbers_of_keys_that_make_no_sense_are_refused(most: Any) -> None:
    with pytest.raises(ad.PlanError, match="max_keys"):
        ad.Dataset.range(1).distinct(max_keys=most)
