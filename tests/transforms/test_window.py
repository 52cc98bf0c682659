from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes, check_transform
from tests import reference
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import results


class Point(NamedTuple):
    x: Any
    y: Any


def fail_at_2(x: int) -> int:
    if x == 2:
        raise Boom(x)
    return x


def shown(ds: ad.Dataset) -> list[Any]:
    """The elements of each window, failures in their places."""
    return [results(window) if isinstance(window, ad.Dataset) else window for window in results(ds)]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("shift", first_by_default([2, None, 1, 7], 2))
@pytest.mark.parametrize(("stride", "drop"), first_by_default([(3, True), (1, False), (1, True), (3, False)]))
def test_keeps_its_contract(size: int, shift: int | None, stride: int, drop: bool) -> None:
    check_transform(
        lambda ds: ds.window(size, shift, stride, drop).flat_map(lambda window: window.batch(1000)),
        lambda items: [np.array(members) for members in reference.window(items, size, shift, stride, drop)],
        [(), (1,), range(3), range(100)],
    )


def test_the_last_windows_shrink_unless_they_are_dropped() -> None:
    assert shown(ad.Dataset.range(4).window(3, shift=1)) == [[0, 1, 2], [1, 2, 3], [2, 3], [3]]
    assert shown(ad.Dataset.range(4).window(3, shift=1, drop_remainder=True)) == [[0, 1, 2], [1, 2, 3]]


def test_elements_between_windows_are_left_out() -> None:
    assert shown(ad.Dataset.range(11).window(2, shift=5)) == [[0, 1], [5, 6], [10]]


def test_a_window_is_a_dataset_that_can_be_read_again_and_by_number() -> None:
    (window,) = ad.Dataset.from_iterable("abc").window(3)
    assert list(window) == list(window) == ["a", "b", "c"]
    assert (len(window), window[1]) == (3, "b")
    assert sorted(window.shuffle(seed=1)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("element", "kind"), [(lambda i: (i, f"{i}"), tuple), (lambda i: Point(i, f"{i}"), Point)], ids=["tuple", "named"]
)
def test_of_elements_with_parts_a_window_has_a_dataset_for_each(element: Any, kind: Any) -> None:
    window, _ = ad.Dataset.range(3).map(element).window(2)
    assert type(window) is kind
    assert [list(part) for part in window] == [[0, 1], ["0", "1"]]


def test_parts_of_parts_are_datasets_too() -> None:
    ds = ad.Dataset.range(2).map(lambda i: {"a": (i, None), "b": np.arange(i)})
    (window,) = ds.window(2)
    assert list(window["a"][0]) == [0, 1]
    assert list(window["a"][1]) == [None, None]
    assert [part.tolist() for part in window["b"]] == [[], [0]]


def test_parts_are_joined_again_with_zip() -> None:
    ds = ad.Dataset.range(4).map(lambda i: (i, -i)).window(2)
    pairs = list(ds.flat_map(lambda a, b: ad.Dataset.zip(a.batch(2), b.batch(2))))
    assert [(a.tolist(), b.tolist()) for a, b in pairs] == [([0, 1], [0, -1]), ([2, 3], [-2, -3])]


def test_an_element_that_failed_is_raised_by_each_window_that_has_it() -> None:
    ds = ad.Dataset.range(5).map(fail_at_2).window(3, shift=2)
    assert shown(ds) == [[0, 1, Failed("Boom(2)")], [Failed("Boom(2)"), 3, 4], [4]]
    assert [x.tolist() for x in list(ds.skip(2).flat_map(lambda window: window.batch(3)))] == [[4]]


def test_each_window_raises_an_exception_of_its_own() -> None:
    raised: list[Boom] = []
    for window in ad.Dataset.range(4).map(fail_at_2).window(3, shift=1, drop_remainder=True):
        for _ in range(2):
            with pytest.raises(Boom) as caught:
                list(window)
            raised.append(caught.value)
    assert len(set(map(id, raised))) == len(raised) == 4
    assert all(len([note for note in error.__notes__ if "element 2" in note]) == 1 for error in raised)


def test_an_element_that_failed_is_in_all_parts_and_zip_makes_it_one_again() -> None:
    ds = ad.Dataset.range(4).map(fail_at_2).map(lambda i: (i, -i)).window(4)
    assert results(ds.flat_map(lambda a, b: ad.Dataset.zip(a, b))) == [(0, 0), (1, -1), Failed("Boom(2)"), (3, -3)]


def test_elements_that_are_not_alike_spoil_their_windows_only() -> None:
    ds = ad.Dataset.from_iterable([1, 2, (3, 4), 5, 6, 7]).window(2)
    assert shown(ds) == [[1, 2], Failed("StructureError"), [6, 7]]
    with pytest.raises(ad.StructureError, match=r"\['\[0\]', '\[1\]'\], another no parts") as caught:
        list(ds)
    assert "in window(2, shift=2), elements 2 to 3" in caught.value.__notes__


def test_an_endless_input() -> None:
    ds = ad.Dataset.counter().window(3, shift=1).flat_map(lambda window: window.batch(3)).take(2)
    assert [batch.tolist() for batch in ds] == [[0, 1, 2], [1, 2, 3]]
    assert ad.Dataset.counter().window(3).cardinality() == ad.INFINITE_CARDINALITY


@pytest.mark.parametrize("count", range(8))
@pytest.mark.parametrize("how", [(3, None, 1), (3, 1, 1), (2, 5, 1), (3, 2, 2)])
@pytest.mark.parametrize("drop", [False, True])
def test_len_counts_the_windows(count: int, how: Any, drop: bool) -> None:
    ds = ad.Dataset.range(count).window(*how, drop)
    assert len(ds) == len(list(ds))


@pytest.mark.parametrize("wrong", [{"size": 0}, {"size": -1}, {"size": 2, "shift": 0}, {"size": 2, "stride": 0}])
def test_wrong_sizes_are_refused_where_they_are_given(wrong: dict[str, int]) -> None:
    with pytest.raises(ad.PlanError, match=r"window\((size|shift|stride)="):
        ad.Dataset.range(3).window(**wrong)


def test_a_size_that_is_no_number_is_refused() -> None:
    with pytest.raises(ad.PlanError, match="integer"):
        ad.Dataset.range(3).window("3")  # type: ignore[arg-type]


@pytest.mark.parametrize("how", [(3, 1, 1), (4, 2, 2), (2, 5, 1)])
def test_goes_on_in_any_window_and_between_them(how: Any) -> None:
    check_resumes(lambda: ad.Dataset.range(30).filter(lambda x: x % 7).window(*how).flat_map(lambda w: w))
    check_resumes(lambda: ad.Dataset.range(30).map(fail_at_2).window(*how).flat_map(lambda w: w.batch(2)).shuffle(5))


def test_what_overlapping_windows_hold_is_told_where_no_order_is_promised() -> None:
    """A window that follows one that was delivered has the same members again, whatever comes first then."""

    def unordered() -> ad.Dataset:
        mapped = ad.Dataset.range(60).map(abs, num_parallel_calls=4, deterministic=False)
        return mapped.window(4, shift=1).flat_map(lambda window: window.batch(4))

    with unordered().iterate() as windows:
        for _ in range(5):
            last = next(windows)
        state = windows.state_dict()
    with unordered().iterate(state=state) as windows:
        assert next(windows)[:3].tolist() == last[1:].tolist()


def test_each_element_once_where_no_order_is_promised() -> None:
    check_resumes(
        lambda: (
            ad.Dataset.range(60)
            .map(abs, num_parallel_calls=4, deterministic=False)
            .window(4)
            .flat_map(lambda window: window)
        ),
        ordered=False,
    )


def test_windows_are_skipped_without_reading_them() -> None:
    seen: list[int] = []
    ds = ad.Dataset.range(10**12).map(lambda x: seen.append(x) or x).window(3, shift=2)
    with ds.flat_map(lambda w: w).with_options(ad.Options(optimize=False)).iterate() as elements:
        next(elements)
    assert seen == [0, 1, 2]
    with ds.iterate() as windows:
        windows.skip(10**9)
        assert list(next(windows)) == [2 * 10**9, 2 * 10**9 + 1, 2 * 10**9 + 2]
