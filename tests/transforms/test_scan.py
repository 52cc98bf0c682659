from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes, check_transform
from tests import reference
from tests.laws.functions import Opaque, opaque
from tests.reference import Boom, Failed
from tests.running import WAYS
from tests.states import edited


def total(state: Any, x: Any) -> Any:
    return state + x, state + x


async def total_async(state: Any, x: Any) -> Any:
    await asyncio.sleep(0)
    return total(state, x)


def fail_at_2(state: int, x: int) -> Any:
    if x == 2:
        raise Boom(x)
    return total(state, x)


@pytest.mark.parametrize("fn", [total, total_async])
def test_keeps_its_contract(fn: Any) -> None:
    check_transform(
        lambda ds: ds.scan(5, fn),
        lambda items: reference.scan(items, 5, total),
        [(), (1,), range(3), range(100)],
    )


def test_elements_with_parts_are_one_argument() -> None:
    ds = ad.Dataset.from_iterable([("a", 1), ("b", 2)]).scan("", lambda s, pair: (s + pair[0], (s, pair[1])))
    assert list(ds) == [("", 1), ("a", 2)]


def test_the_state_may_be_anything_and_become_something_else() -> None:
    assert list(ad.Dataset.range(3).scan(None, lambda s, x: ((s, x), s))) == [None, (None, 0), ((None, 0), 1)]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_failure_has_its_place_and_leaves_the_state(way: Any) -> None:
    assert way(ad.Dataset.range(5).scan(0, fail_at_2)) == [0, 1, Failed("Boom(2)"), 4, 8]
    failing = ad.Dataset.range(5).map(lambda x: fail_at_2(0, x)[0])
    assert way(failing.scan(0, total)) == [0, 1, Failed("Boom(2)"), 4, 8]


@pytest.mark.parametrize("returned", [None, 1, (1,), (1, 2, 3), "ab", {"a": 1, "b": 2}])
@pytest.mark.parametrize("is_coroutine", [False, True])
def test_what_is_no_state_and_element_is_refused(returned: Any, is_coroutine: bool) -> None:
    async def fn(state: Any, x: Any) -> Any:
        return returned

    ds = ad.Dataset.range(2).scan(0, fn if is_coroutine else lambda state, x: returned)
    with pytest.raises(TypeError, match=r"scan\(.*at test_scan.py:.* must return a state and an element") as caught:
        list(ds)
    assert any("element 0" in note for note in caught.value.__notes__)


def test_a_plain_function_that_returns_a_coroutine_is_told_so() -> None:
    with pytest.raises(TypeError, match="async def"):
        list(ad.Dataset.range(1).scan(0, lambda state, x: total_async(state, x)))


def test_the_initial_state_is_the_same_in_each_epoch() -> None:
    def append(state: list[int], x: int) -> Any:
        state.append(x)
        return state, len(state)

    initial: list[int] = []
    ds = ad.Dataset.range(3).scan(initial, append)
    assert [list(ds), list(ds), initial] == [[1, 2, 3], [1, 2, 3], []]


def test_an_endless_input_is_asked_for_no_more_than_is_wanted() -> None:
    seen: list[int] = []

    def note(state: int, x: int) -> Any:
        seen.append(x)
        return state + 1, x

    ds = ad.Dataset.counter().scan(0, note).with_options(ad.Options(optimize=False))
    assert list(ds.take(3)) == seen == [0, 1, 2]
    assert ds.cardinality() == ad.INFINITE_CARDINALITY


def test_what_is_no_function_is_refused_where_it_is_given() -> None:
    with pytest.raises(ad.PlanError, match="scan needs a function"):
        ad.Dataset.range(1).scan(0, 3)  # type: ignore[arg-type]


STATES = [
    *(0, 1.5, float("nan"), True, None, "x", b"\0x", 1 + 2j, 2**80, (), [], {}, (1, (2,)), [1, [2]], {"a": (1, b"b")}),
    *({1: 2, None: (3,)}, np.arange(3, dtype="int8"), np.zeros((2, 0)), np.array(1.5), np.float32(2), np.bool_(True)),
    *(np.datetime64("2026-01-01"), {"a": [np.arange(2), (np.int64(1),)]}, np.array(["x", "yz"])),
]


@pytest.mark.parametrize("state", STATES, ids=repr)
def test_goes_on_with_every_kind_of_state_that_can_be_told(state: Any) -> None:
    ds = lambda: ad.Dataset.range(4).scan(state, lambda state, x: (state, (x, state)))  # noqa: E731
    check_resumes(ds)
    assert "exact" in ds().explain()


def test_strings_of_any_length_are_no_state_that_can_be_told() -> None:
    words = np.array(["a" * 40], getattr(np.dtypes, "StringDType", lambda: "U40")())
    check_resumes(lambda: ad.Dataset.range(4).scan(words, lambda state, x: (state, (x, str(state[0])))))


def moving(state: Any, x: int) -> Any:
    """Change an array in place."""
    state *= 0.5
    state += x
    return state, state.copy()


@pytest.mark.parametrize("fn", [total, total_async, fail_at_2])
def test_goes_on_anywhere(fn: Any) -> None:
    check_resumes(lambda: ad.Dataset.range(300).shuffle(50, seed=1).scan(0, fn).batch(3))


def test_goes_on_where_a_state_is_changed_in_place() -> None:
    check_resumes(lambda: ad.Dataset.range(300).filter(lambda x: x % 3).scan(np.zeros(4), moving))


def test_what_is_held_after_it_is_worked_out_again() -> None:
    check_resumes(lambda: ad.Dataset.range(60).scan(0, fail_at_2).shuffle(7, seed=3))


class Mean(NamedTuple):
    total: float
    count: int


@pytest.mark.parametrize(
    ("initial", "fn"),
    [(Opaque(), opaque), (Mean(0, 0), lambda s, x: (Mean(s.total + x, s.count + 1), s.total))],
    ids=["object", "named tuple"],
)
def test_a_state_that_cannot_be_told_is_worked_out_again(initial: Any, fn: Any) -> None:
    ds = lambda: ad.Dataset.range(200).scan(initial, fn)  # noqa: E731
    check_resumes(ds)
    assert f"{ds().plan.label()} is run again from the beginning" in ds().explain()
    with ds().iterate() as elements:
        elements.skip(150)
        next(elements)
        state = elements.state_dict()
    assert state["position"] == [None, None, 151]


def unordered() -> ad.Dataset:
    return ad.Dataset.range(40).map(abs, num_parallel_calls=4, deterministic=False)


def test_each_element_once_where_no_order_is_promised() -> None:
    check_resumes(lambda: unordered().scan(0, lambda state, x: (state + 1, x)), ordered=False)


def test_such_a_state_of_what_has_no_order_is_refused_loudly() -> None:
    with unordered().scan(Opaque(), opaque).iterate() as elements:
        next(elements)
        with pytest.raises(ad.ResumeError, match="cannot be read again in the same order"):
            elements.state_dict()
        assert len(list(elements)) == 39


def test_a_state_that_is_none_of_its_own_is_refused() -> None:
    ds = ad.Dataset.range(4).scan(0, total)
    with ds.iterate() as elements:
        next(elements)
        state = json.loads(json.dumps(elements.state_dict()))
    for position in (
        3,
        [1],
        [1, {"state": {"__kind__": "array", "data": "?", "dtype": "int8", "shape": [1]}}, 0],
        [1, None, "x"],
    ):
        with pytest.raises(ad.ResumeError, match="does not fit this step"):
            list(ds.iterate(state=edited(state, position=position)))
