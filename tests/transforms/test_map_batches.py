from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes, check_transform, virtual_time
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import WAYS, results


def halve(x: np.ndarray) -> np.ndarray:
    return x / 2


def halve_even(x: np.ndarray) -> np.ndarray:
    if (x % 2).any():
        raise Boom([int(odd) for odd in x[x % 2 == 1]])
    return x / 2


@pytest.mark.parametrize("size", first_by_default([3, 1000, 1, 64], 2))
@pytest.mark.parametrize("how", first_by_default([{}, {"num_parallel_calls": 3}, {"executor": "thread"}], 2))
def test_keeps_its_contract(size: int, how: dict[str, Any]) -> None:
    check_transform(lambda ds: ds.map(halve, batch=size, **how), lambda items: [np.float64(x / 2) for x in items])


def words_of(batch: Any) -> list[str]:
    return [repr(batch)] * len(batch)


def odd_one_fails(x: Any) -> Any:
    if x == 1:
        raise Boom(x)
    return x


@pytest.mark.parametrize("executor", [None, "thread"])
def test_the_function_is_given_no_elements_that_have_failed(executor: Any) -> None:
    ds = ad.Dataset.range(4).map(odd_one_fails).map(words_of, batch=2, num_parallel_calls=2, executor=executor)
    assert results(ds) == ["array([0])", Failed("Boom(1)"), "array([2, 3])", "array([2, 3])"]


@pytest.mark.parametrize("how", [{}, {"num_parallel_calls": 2}])
def test_the_function_is_given_whole_batches(how: dict[str, Any]) -> None:
    sizes: list[int] = []

    def note(x: np.ndarray) -> np.ndarray:
        sizes.append(len(x))
        return x

    assert list(ad.Dataset.range(10).map(note, batch=4, **how)) == list(range(10))
    assert sorted(sizes) == [2, 4, 4]


def test_structures_go_in_and_come_out() -> None:
    elements = [{"x": np.full(2, i), "y": f"{i}"} for i in range(3)]
    ds = ad.Dataset.from_iterable(elements).map(lambda batch: (batch["x"].sum(1), {"y": batch["y"] * 2}), batch=2)
    assert list(ds) == [(0, {"y": "00"}), (2, {"y": "11"}), (4, {"y": "22"})]


def test_tuples_are_unpacked_and_lists_are_results() -> None:
    ds = ad.Dataset.from_iterable([(1, 2), (3, 4), (5, 6)])
    assert list(ds.map(lambda a, b: [[int(x)] * int(y) for x, y in zip(a, b, strict=True)], batch=2)) == [
        [1, 1],
        [3, 3, 3, 3],
        [5, 5, 5, 5, 5, 5],
    ]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("how", [{}, {"num_parallel_calls": 2}])
def test_those_fail_which_are_to_blame(way: Any, how: dict[str, Any]) -> None:
    found = way(ad.Dataset.range(6).map(halve_even, batch=4, **how))
    assert found == [0.0, Failed("Boom([1])"), 1.0, Failed("Boom([3])"), 2.0, Failed("Boom([5])")]


def test_the_note_names_the_element() -> None:
    with pytest.raises(Boom) as caught:
        list(ad.Dataset.range(2, 9).map(halve_even, batch=4))
    line = halve_even.__code__.co_firstlineno
    assert caught.value.__notes__ == [f"in map(halve_even) at test_map_batches.py:{line}, element 1"]


def test_failures_of_the_input_keep_their_places() -> None:
    def fail(x: int) -> int:
        if x in (1, 2):
            raise Boom(x)
        return x

    assert results(ad.Dataset.range(5).map(fail).map(halve, batch=2)) == [
        0.0,
        Failed("Boom(1)"),
        Failed("Boom(2)"),
        1.5,
        2.0,
    ]


def test_elements_that_do_not_stack_are_tried_alone() -> None:
    ds = ad.Dataset.from_iterable([np.ones(2), np.ones(3), np.ones(3)])
    assert list(ds.map(lambda x: x.sum(1), batch=3)) == [2.0, 3.0, 3.0]


@pytest.mark.parametrize("wrong", [lambda x: x[1:], lambda x: [*x, *x], lambda x: 1, lambda x: x.sum()])
def test_another_number_of_results_fails(wrong: Any) -> None:
    assert results(ad.Dataset.range(3).map(wrong, batch=3)) == [Failed("StructureError")] * 3


def test_too_few_results_say_so() -> None:
    with pytest.raises(ad.StructureError, match="given 1 elements, and returned 0"):
        list(ad.Dataset.range(1).map(lambda x: x[1:], batch=3))


def test_a_coroutine_function_is_awaited_as_many_times_at_once_as_asked() -> None:
    """Twelve batches of an hour each by four at once: three hours."""

    async def hour(x: np.ndarray) -> np.ndarray:
        await asyncio.sleep(3600)
        return x + 1

    async def read() -> list[int]:
        ds = ad.Dataset.range(24).map(hour, num_parallel_calls=4, batch=2)
        return [int(x) async for x in ds.with_options(ad.Options(placement="current"))]

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        assert runner.run(read()) == list(range(1, 25))
        assert runner.get_loop().time() == 3 * 3600


def test_a_coroutine_function_that_fails_is_tried_one_by_one() -> None:
    async def run(x: np.ndarray) -> np.ndarray:
        await asyncio.sleep(0)
        return halve_even(x)

    assert results(ad.Dataset.range(3).map(run, batch=4)) == [0.0, Failed("Boom([1])"), 1.0]


def test_a_function_that_returns_a_coroutine_is_refused() -> None:
    async def run(x: np.ndarray) -> np.ndarray:
        return x

    assert results(ad.Dataset.range(2).map(lambda x: run(x), batch=2)) == [Failed("TypeError")] * 2


def test_no_more_is_read_than_makes_a_batch() -> None:
    read: list[int] = []
    ds = ad.Dataset.range(100).map(lambda x: read.append(x) or x).map(halve, batch=8)
    with ds.with_options(ad.Options(optimize=False)).iterate() as elements:
        for count in range(1, 20):
            next(elements)
            assert len(read) == (count + 7) // 8 * 8


@pytest.mark.parametrize("how", [{}, {"num_parallel_calls": 3}])
def test_goes_on_in_the_middle_of_a_batch(how: dict[str, Any]) -> None:
    check_resumes(lambda: ad.Dataset.range(30).map(halve_even, batch=7, **how))
    check_resumes(lambda: ad.Dataset.range(30).shuffle(5, seed=1).map(halve, batch=7, **how).shuffle(4, seed=2))


def test_another_size_goes_on() -> None:
    with ad.Dataset.range(9).map(halve, batch=4).iterate() as elements:
        next(elements)
        state = elements.state_dict()
    rest = ad.Dataset.range(9).map(halve, batch=3, num_parallel_calls=2).iterate(state=state)
    assert [2 * x for x in rest] == list(range(1, 9))


def test_infinite_input_and_elements_by_number() -> None:
    assert list(ad.Dataset.counter().map(halve, batch=8).take(3)) == [0.0, 0.5, 1.0]
    assert ad.Dataset.range(10**9).map(halve, batch=8)[10] == 5.0
    assert len(ad.Dataset.range(9).map(halve, batch=2)) == 9


@pytest.mark.parametrize("size", [0, -1, 1.5, "2"])
def test_sizes_that_make_no_sense_are_refused(size: Any) -> None:
    with pytest.raises(ad.PlanError, match=r"map\(batch=\)"):
        ad.Dataset.range(1).map(halve, batch=size)


def test_random_numbers_are_for_functions_of_one_element() -> None:
    with pytest.raises(ad.PlanError, match="rng="):
        ad.Dataset.range(1).map(halve, batch=2, rng=True)
