from __future__ import annotations

import asyncio
import dataclasses
import functools
import threading
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_transform
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import WAYS, results

HOW: list[dict[str, Any]] = [
    {},
    {"num_parallel_calls": 3},
    {"executor": "inline"},
    {"executor": "thread", "num_parallel_calls": 2},
    {"executor": ad.AUTOTUNE},
    {"num_parallel_calls": 1},
    {"num_parallel_calls": ad.AUTOTUNE},
    {"executor": "thread"},
    {"num_parallel_calls": 4, "deterministic": True},
]


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Sample:
    image: Any
    label: Any


def double(x: Any) -> Any:
    return x * 2


async def double_later(x: Any) -> Any:
    await asyncio.sleep(0)
    return x * 2


def fail_at_3(x: int) -> int:
    if x == 3:
        raise Boom(x)
    return x


async def fail_at_3_later(x: int) -> int:
    await asyncio.sleep(0)
    return fail_at_3(x)


@pytest.mark.parametrize("how", first_by_default(HOW, 5), ids=str)
@pytest.mark.parametrize("fn", [double, double_later])
def test_keeps_its_contract_in_every_executor(how: dict[str, Any], fn: Any) -> None:
    if fn is double_later and how.get("executor") in {"inline", "thread"}:
        pytest.skip("a coroutine function runs on the engine's loop")
    check_transform(lambda ds: ds.map(fn, **how), lambda items: [x * 2 for x in items], [(), (1,), range(100)])


def test_an_unordered_map_loses_nothing() -> None:
    ds = ad.Dataset.range(500).map(double_later, num_parallel_calls=8, deterministic=False)
    assert sorted(ds) == [x * 2 for x in range(500)]


def test_a_tuple_is_unpacked_into_arguments() -> None:
    pairs = ad.Dataset.from_iterable([(1, 2), (3, 4)])
    assert list(pairs.map(lambda a, b: a + b)) == [3, 7]


@pytest.mark.parametrize("element", [[1, 2], {"a": 1}, Point(1, 2), Sample(1, 2), "ab", None, b"ab"])
def test_anything_but_a_tuple_is_one_argument(element: Any) -> None:
    assert list(ad.Dataset.from_iterable([element]).map(lambda x: (x, type(x)))) == [(element, type(element))]


def test_a_nested_tuple_is_unpacked_once() -> None:
    assert list(ad.Dataset.from_iterable([(1, (2, 3))]).map(lambda a, b: b)) == [(2, 3)]


def test_none_is_an_element_like_any_other() -> None:
    assert list(ad.Dataset.range(3).map(lambda x: None)) == [None, None, None]


def test_partials_methods_and_callable_objects() -> None:
    class Adder:
        def __call__(self, x: int) -> int:
            return x + 1

        def add_two(self, x: int) -> int:
            return x + 2

    class Awaited:
        async def __call__(self, x: int) -> int:
            return x + 3

    ds = ad.Dataset.range(2)
    assert list(ds.map(functools.partial(int.__add__, 5))) == [5, 6]
    assert list(ds.map(Adder())) == [1, 2]
    assert list(ds.map(Adder().add_two)) == [2, 3]
    assert list(ds.map(Awaited())) == [3, 4]
    assert list(ds.map(functools.partial(double_later))) == [0, 2]
    assert list(ds.map(float)) == [0.0, 1.0]
    assert list(ds.map(np.negative)) == [0, -1]


@pytest.mark.parametrize("fn", [fail_at_3, fail_at_3_later])
@pytest.mark.parametrize("how", [{}, {"num_parallel_calls": 1}, {"num_parallel_calls": 4}], ids=str)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_failure_stands_in_its_elements_place(fn: Any, how: dict[str, Any], way: Any) -> None:
    assert way(ad.Dataset.range(6).map(fn, **how)) == [0, 1, 2, Failed("Boom(3)"), 4, 5]


@pytest.mark.parametrize("fn", [fail_at_3, fail_at_3_later])
@pytest.mark.parametrize("how", [{}, {"num_parallel_calls": 4}], ids=str)
def test_the_users_own_exception_says_where_it_happened(fn: Any, how: dict[str, Any]) -> None:
    with pytest.raises(Boom) as caught:
        list(ad.Dataset.range(6).map(fn, **how))
    (note,) = caught.value.__notes__
    line = fn.__code__.co_firstlineno
    assert note == f"in map({fn.__name__}) at test_map.py:{line}, element 3"
    assert fn.__name__ in [frame.name for frame in caught.traceback]


def test_one_exception_object_raised_for_many_elements() -> None:
    shared = Boom("shared")

    def fail(x: int) -> int:
        raise shared

    assert results(ad.Dataset.range(3).map(fail)) == [Failed("Boom('shared')")] * 3


@pytest.mark.parametrize("error", [StopIteration(), StopAsyncIteration(), asyncio.CancelledError(), GeneratorExit()])
@pytest.mark.parametrize("how", [{}, {"num_parallel_calls": 2}], ids=str)
@pytest.mark.parametrize("is_async", [False, True])
def test_exceptions_that_mean_something_to_python_end_nothing(error: Any, how: dict[str, Any], is_async: bool) -> None:
    """Neither may the stream end quietly, nor may the consumer take it for its own cancellation's end."""

    def fail(x: int) -> int:
        if x == 1:
            raise error
        return x

    async def fail_later(x: int) -> int:
        await asyncio.sleep(0)
        return fail(x)

    ds = ad.Dataset.range(3).map(fail_later if is_async else fail, **how)
    elements = iter(ds)
    assert next(elements) == 0
    with pytest.raises(BaseException) as caught:
        next(elements)
    assert not isinstance(caught.value, (StopIteration, StopAsyncIteration))
    if isinstance(error, (StopIteration, StopAsyncIteration, asyncio.CancelledError)):
        assert next(elements) == 2
    elements.close()


def test_a_function_that_returns_an_exception_has_not_failed() -> None:
    (element,) = ad.Dataset.range(1).map(Boom)
    assert isinstance(element, Boom)


def test_wrong_number_of_arguments_is_the_elements_failure() -> None:
    """Where nobody knows before what elements are."""
    assert results(ad.Dataset.range(2).map(abs).map(lambda a, b: a)) == [Failed("TypeError")] * 2


def test_a_plain_function_that_returns_a_coroutine_is_told_how_to_be_written() -> None:
    with pytest.raises(TypeError, match=r"async def`, or give functools\.partial"):
        list(ad.Dataset.range(1).map(lambda x: double_later(x)))
    assert list(ad.Dataset.range(2).map(functools.partial(double_later))) == [0, 2]


def test_a_sequential_map_calls_its_function_in_order_once_per_element() -> None:
    calls: list[int] = []
    assert list(ad.Dataset.range(50).map(lambda x: calls.append(x) or x).take(20)) == list(range(20))
    assert calls == list(range(20))


def test_inline_functions_share_a_thread_and_threads_are_not_the_engines() -> None:
    engine = set(ad.Dataset.range(50).map(lambda x: threading.get_ident()))
    assert len(engine) == 1
    assert threading.get_ident() not in engine
    workers = set(ad.Dataset.range(50).map(lambda x: threading.get_ident(), num_parallel_calls=2))
    assert len(workers) <= 2
    assert threading.get_ident() not in workers


@pytest.mark.parametrize(
    "how", [{}, {"executor": "inline"}, {"rng": True}, {"batch": 2}, {"vectorized": True}], ids=str
)
def test_a_synchronous_map_of_a_pure_function_stays_on_the_engines_thread(how: dict[str, Any]) -> None:
    def look(x: Any, **_: Any) -> Any:
        return x * 0 + threading.get_ident()

    ds = ad.Dataset.range(50).map(look, pure=True, synchronous=True, **how)
    assert len(set(ds)) == 1
    assert ds.plan.executor is None  # which would find out whether threads are faster


@pytest.mark.parametrize("value", [True, False, None])
def test_a_synchronous_coroutine_function_is_awaited_one_at_a_time(value: bool | None) -> None:
    running: list[int] = []

    async def look(x: int) -> int:
        running.append(x)
        await asyncio.sleep(0)
        return x if running.pop() == x and not running else -1

    assert list(ad.Dataset.range(20).map(look, synchronous=value)) == list(range(20))


@pytest.mark.parametrize(
    "how",
    [
        {"num_parallel_calls": 1},
        {"num_parallel_calls": ad.AUTOTUNE},
        {"executor": "thread"},
        {"executor": "process"},
        {"executor": ad.AUTOTUNE},
        {"batch": 2, "num_parallel_calls": 2},
    ],
    ids=str,
)
def test_synchronous_and_parallel_are_refused_together(how: dict[str, Any]) -> None:
    with pytest.raises(ad.PlanError, match=r"map\(synchronous=True\).*leave out (num_parallel_calls|executor)="):
        ad.Dataset.range(1).map(double, synchronous=True, **how)
    ad.Dataset.range(1).map(double, synchronous=False, **how)
    with pytest.raises(ad.PlanError, match="synchronous"):
        ad.Dataset.range(1).map(double, synchronous=3, **how)  # type: ignore[call-overload]


@pytest.mark.parametrize("calls", [0, -3, 1.5, "many"])
def test_wrong_number_of_calls_is_refused_where_it_is_given(calls: Any) -> None:
    with pytest.raises(ad.PlanError, match="num_parallel_calls"):
        ad.Dataset.range(1).map(double, num_parallel_calls=calls)


def test_wrong_executor_is_refused_where_it_is_given() -> None:
    with pytest.raises(ad.PlanError, match="executor"):
        ad.Dataset.range(1).map(double, executor="gpu")  # type: ignore[arg-type]


@pytest.mark.parametrize("fn", [None, 3, "len"])
def test_what_is_no_function_is_refused_where_it_is_given(fn: Any) -> None:
    with pytest.raises((ad.PlanError, TypeError)):
        ad.Dataset.range(1).map(fn)


@pytest.mark.parametrize("executor", ["inline", "thread"])
def test_a_coroutine_function_in_the_wrong_executor_is_refused(executor: Any) -> None:
    with pytest.raises(ad.PlanError, match="coroutine"):
        ad.Dataset.range(1).map(double_later, executor=executor)


def test_options_make_all_parallel_maps_unordered() -> None:
    async def wait(x: int) -> int:
        for _ in range(20 if x == 0 else 0):
            await asyncio.sleep(0)
        return x

    ds = ad.Dataset.range(8).map(wait, num_parallel_calls=8)
    unordered = list(ds.with_options(ad.Options(deterministic=False)))
    assert sorted(unordered) == list(ds) == list(range(8))
    assert unordered != list(range(8))


def test_maps_keep_structures() -> None:
    ds = ad.Dataset.range(2).map(lambda x: Sample(np.zeros(3), Point(x, "label")))
    first, second = ds
    assert isinstance(first, Sample)
    assert second.label == Point(1, "label")


@pytest.mark.parametrize("method", ["map", "filter", "flat_map"])
@pytest.mark.parametrize(("element", "fn"), [((1, 2), lambda pair: pair), (1, lambda x, y: x)], ids=["pair", "number"])
def test_a_function_of_another_number_of_arguments_is_told_how_it_is_called(method: str, element: Any, fn: Any) -> None:
    with pytest.raises(TypeError, match="positional argument") as caught:
        list(getattr(ad.Dataset.from_iterable([element]), method)(fn))
    assert caught.value.__notes__[1] == "a tuple is unpacked into arguments; any other element is one argument"


def test_an_error_within_the_function_is_told_nothing_of_that() -> None:
    def alone() -> int:
        return 0

    with pytest.raises(TypeError, match="positional argument") as caught:
        list(ad.Dataset.range(1).map(lambda x: alone(x)))  # type: ignore[call-arg]
    assert len(caught.value.__notes__) == 1


@pytest.mark.parametrize("said", [{"keeps": "x"}, {"shrinks": True}])
@pytest.mark.parametrize("how", [{}, {"batch": 2}, {"executor": "inline"}])
def test_what_may_be_moved_must_be_pure_or_parallel(said: Any, how: Any) -> None:
    with pytest.raises(ad.PlanError, match="add pure=True"):
        ad.Dataset.from_iterable([]).map(lambda x: x, **how, **said)
    ad.Dataset.from_iterable([]).map(lambda x: x, **how, **said, pure=True)


def test_a_seed_of_a_state_leaves_what_was_said_of_the_function() -> None:
    ds = ad.Dataset.from_list([{"x": number} for number in range(9)]).map(lambda x, rng: x, 2, rng=True, keeps="x")
    ds = ds.filter(lambda x: x % 2, reads="x").with_options(ad.Options(reorder=True))
    with ds.iterate() as elements:
        state = elements.state_dict()
    seeded = ds.iterate(state=state)
    assert repr(seeded).index("filter") < repr(seeded).index("map")
    assert [element["x"] for element in seeded] == [1, 3, 5, 7]


def test_an_executor_of_interpreters_is_refused_where_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(futures, "InterpreterPoolExecutor"):  # before Python 3.14
        monkeypatch.setattr(
            futures, "InterpreterPoolExecutor", type("Interpreters", (ThreadPoolExecutor,), {}), raising=False
        )
    with futures.InterpreterPoolExecutor(1) as executor:  # type: ignore[attr-defined]
        for more in ({}, {"batch": 2}, {"num_parallel_calls": 2}):
            with pytest.raises(ad.PlanError, match="cannot be an .*give executor='process', or a ThreadPoolExecutor"):
                ad.Dataset.range(3).map(abs, executor=executor, **more)
    with pytest.raises(ad.PlanError, match="or an executor of concurrent.futures, got 3"):
        ad.Dataset.range(3).map(abs, executor=3)
