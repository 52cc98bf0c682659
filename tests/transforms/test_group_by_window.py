from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes, check_transform
from tests import reference
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import WAYS, results


def by_3(x: int) -> int:
    return x % 3


async def by_3_async(x: int) -> np.int64:
    await asyncio.sleep(0)
    return np.int64(x % 3)


def fail_at_2(x: int) -> int:
    if x == 2:
        raise Boom(x)
    return x % 2


def as_list(key: Any, window: ad.Dataset) -> ad.Dataset:
    return window.batch(100).map(lambda batch: (key, batch.tolist()))


@pytest.mark.parametrize("size", first_by_default([2, 1000, 1, 7], 2))
@pytest.mark.parametrize("key", [by_3, by_3_async])
def test_keeps_its_contract(size: int, key: Any) -> None:
    check_transform(
        lambda ds: ds.group_by_window(key, as_list, size),
        lambda items: reference.group_by_window(items, by_3, lambda key, window: [(key, window)], lambda _: size),
        [(), (1,), range(3), range(100)],
    )


def test_each_key_may_have_a_size_of_its_own() -> None:
    ds = ad.Dataset.range(9).group_by_window(lambda x: x % 2, as_list, window_size_func=lambda key: 2 + key)
    assert list(ds) == [(0, [0, 2]), (1, [1, 3, 5]), (0, [4, 6]), (0, [8]), (1, [7])]


def test_what_is_left_comes_in_the_order_of_the_keys() -> None:
    keys = ["b", 10, None, 9, "a", b"x", 0.5]
    ds = ad.Dataset.from_iterable(keys).group_by_window(lambda x: x, lambda key, window: window, 2)
    assert list(ds) == [0.5, 9, 10, None, b"x", "a", "b"]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_failure_has_its_place_and_is_in_no_window(way: Any) -> None:
    expected = [Failed("Boom(2)"), (1, [1, 3]), (0, [0, 4]), (0, [6]), (1, [5])]
    assert way(ad.Dataset.range(7).group_by_window(fail_at_2, as_list, 2)) == expected
    failing = ad.Dataset.range(7).map(lambda x: x + 0 * fail_at_2(x))
    assert way(failing.group_by_window(lambda x: x % 2, as_list, 2)) == expected


@pytest.mark.parametrize(
    ("key", "error"), [(lambda x: [x], "TypeError"), (lambda x: by_3_async(x), "TypeError"), (lambda x: 1 // 0, "Zero")]
)
def test_an_element_whose_key_cannot_be_told_is_a_failure_in_its_place(key: Any, error: str) -> None:
    found = results(ad.Dataset.range(2).group_by_window(key, as_list, 2))
    assert [failure.reason[: len(error)] for failure in found] == [error, error]


@pytest.mark.parametrize(("size", "error"), [(lambda key: 0, "ValueError"), (lambda key: "x", "TypeError")])
def test_a_size_that_is_none_is_a_failure_in_the_element_s_place(size: Any, error: str) -> None:
    found = results(ad.Dataset.range(2).group_by_window(by_3, as_list, window_size_func=size))
    assert found == [Failed(error), Failed(error)]


def test_an_error_of_a_size_names_the_method_and_the_function() -> None:
    with pytest.raises(TypeError) as caught:
        list(ad.Dataset.range(2).group_by_window(by_3, as_list, window_size_func=str))
    assert caught.value.__notes__ == ["in group_by_window(window_size_func=str), element 0"]
    with pytest.raises(ZeroDivisionError) as stopped:
        list(ad.Dataset.range(2).group_by_window(by_3, as_list, window_size_func=lambda key: 1 // key))
    (note,) = stopped.value.__notes__
    assert note.startswith("in group_by_window(window_size_func=<lambda>) at test_group_by_window.py:")


def test_a_function_that_makes_no_dataset_is_a_failure_in_the_window_s_place() -> None:
    ds = ad.Dataset.range(5).group_by_window(lambda x: x % 2, lambda key, window: key, 2)
    assert results(ds) == [Failed("TypeError")] * 3
    with pytest.raises(TypeError, match=r"group_by_window\(.*must return a Dataset") as caught:
        list(ds)
    assert any("elements 0 to 2" in note for note in caught.value.__notes__)


def test_an_endless_input_is_read_no_further_than_the_next_window() -> None:
    seen: list[int] = []
    ds = ad.Dataset.counter().map(lambda x: seen.append(x) or x).group_by_window(by_3, as_list, 3)
    with ds.with_options(ad.Options(optimize=False)).iterate() as windows:
        assert [next(windows), next(windows)] == [(0, [0, 3, 6]), (1, [1, 4, 7])]
        assert seen == [0, 1, 2, 3, 4, 5, 6, 7]


def test_elements_with_parts_stay_together() -> None:
    pairs = ad.Dataset.from_iterable([("a", 1), ("b", 2), ("a", 3)])
    ds = pairs.group_by_window(lambda name, number: name, lambda key, window: window, 2)
    assert list(ds) == [("a", 1), ("a", 3), ("b", 2)]


def test_arguments_that_cannot_be_are_refused_where_they_are_given() -> None:
    ds = ad.Dataset.range(3)
    for sizes in ({}, {"window_size": 1, "window_size_func": by_3}, {"window_size": 0}, {"window_size": "x"}):
        with pytest.raises(ad.PlanError, match="window_size"):
            ds.group_by_window(by_3, as_list, **sizes)  # type: ignore[arg-type]
    with pytest.raises(ad.PlanError, match="coroutine"):
        ds.group_by_window(by_3, as_list, window_size_func=by_3_async)  # type: ignore[arg-type]
    with pytest.raises(ad.PlanError, match="needs a function"):
        ds.group_by_window(3, as_list, 2)  # type: ignore[arg-type]


def test_cardinality() -> None:
    for count in (1, 3):  # a window of one element may become any number of them
        assert ad.Dataset.range(count).group_by_window(by_3, as_list, 1).cardinality() == ad.UNKNOWN_CARDINALITY


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_goes_on_anywhere(size: int) -> None:
    check_resumes(lambda: ad.Dataset.range(40).group_by_window(by_3_async, as_list, size))
    check_resumes(lambda: ad.Dataset.range(40).group_by_window(fail_at_2, lambda _, w: w, size).shuffle(5, seed=1))


def test_each_element_once_where_no_order_is_promised() -> None:
    check_resumes(
        lambda: (
            ad.Dataset.range(60)
            .map(abs, num_parallel_calls=4, deterministic=False)
            .group_by_window(by_3, lambda _, window: window, 4)
        ),
        ordered=False,
    )


def test_many_keys_with_few_elements_each() -> None:
    ds = ad.Dataset.range(4_000).group_by_window(lambda x: x // 2, lambda _, window: window.batch(2), 3)
    assert [batch[0] for batch in ds] == list(range(0, 4_000, 2))
