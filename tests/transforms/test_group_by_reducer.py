from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.errors import PlanError, ResumeError
from asyncdata.testing import check_resumes, check_transform, virtual_time
from tests import reference
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import WAYS, results, taken, taken_async
from tests.states import edited

TOTAL = ad.Reducer(lambda key: 0, lambda total, x: total + x, lambda total: total)
MEMBERS = ad.Reducer(lambda key: (key,), lambda found, x: (*found, x), lambda *found: found)


def test_nan_is_one_key() -> None:
    numbers = np.array([np.nan, 1, np.nan, np.nan])
    ds = ad.Dataset.from_iterable(numbers)
    counted = ad.Reducer(lambda _: 0, lambda count, _: count + 1, lambda count: count)
    for key in (
        lambda x: x,
        lambda x: float(x),
        lambda x: (x, 1),
        lambda x: np.datetime64("NaT" if np.isnan(x) else 1, "s"),
    ):
        assert sorted(ds.group_by_reducer(key, counted)) == [1, 3]
        windows = ds.group_by_window(key, lambda _, window: window.batch(3), 3)
        assert [len(window) for window in windows] == [3, 1]


def test_nan_is_behind_other_numbers() -> None:
    ds = ad.Dataset.from_iterable([2.0, math.nan, 3.0, 1, math.nan, -1.0])
    last = ad.Reducer(lambda key: key, lambda state, _: state, lambda state: state)
    assert repr(list(ds.group_by_reducer(lambda x: x, last))) == "[-1.0, 1, 2.0, 3.0, nan]"


def by_three(x: int) -> int:
    return x % 3


def fail_at_2(x: Any, *_: Any) -> Any:
    if x == 2:
        raise Boom(x)
    return x


def test_keeps_its_contract() -> None:
    check_transform(
        lambda ds: ds.group_by_reducer(by_three, TOTAL),
        lambda items: reference.group_by_reducer(items, by_three, 0, lambda total, x: total + x, lambda total: total),
    )


def test_keys_come_in_order() -> None:
    ds = ad.Dataset.from_iterable([5, -1, 12, 5, 0, -1])
    assert list(ds.group_by_reducer(lambda x: x, MEMBERS)) == [(-1, -1, -1), (0, 0), (5, 5, 5), (12, 12)]


@pytest.mark.parametrize(
    ("keys", "order"),
    [
        (["b", "a", "b"], ["a", "b"]),
        ([b"b", b"a"], [b"a", b"b"]),
        ([np.int64(2), 1, np.array(2)], [1, 2]),
        ([True, 0.5, -1], [-1, 0.5, True]),
        ([(1, "x"), None, "a", 3], [3, None, "a", (1, "x")]),
    ],
    ids=str,
)
def test_keys_may_be_whatever_has_a_hash(keys: list[Any], order: list[Any]) -> None:
    named = ad.Reducer(lambda key: {"key": key}, lambda state, _: state, lambda state: state["key"])
    assert (
        list(ad.Dataset.from_iterable(keys).group_by_reducer(lambda *key: key if len(key) > 1 else key[0], named))
        == order
    )


@pytest.mark.parametrize("which", ["key", "init", "reduce", "finalize"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_each_function_may_be_a_coroutine_function(which: str, way: Any) -> None:
    plain = {"key": by_three, "init": TOTAL.init_func, "reduce": TOTAL.reduce_func, "finalize": TOTAL.finalize_func}

    async def awaited(*parts: Any) -> Any:
        await asyncio.sleep(0)
        return plain[which](*parts)

    key, *rest = {**plain, which: awaited}.values()
    ds = ad.Dataset.range(10).group_by_reducer(key, ad.Reducer(*rest))
    assert way(ds) == [18, 12, 15]


def test_tuples_are_arguments_of_the_key_function_and_of_the_last_one_alone() -> None:
    mean = ad.Reducer(lambda _: (0, 0), lambda state, pair: (state[0] + pair[1], state[1] + 1), lambda s, n: s / n)
    ds = ad.Dataset.range(6).map(lambda x: (x % 2, x)).group_by_reducer(lambda key, _: key, mean)
    assert list(ds) == [2.0, 3.0]


def test_of_no_elements_nothing_is_made() -> None:
    assert list(ad.Dataset.range(0).group_by_reducer(by_three, TOTAL)) == []
    assert list(ad.Dataset.range(9).filter(lambda x: False).group_by_reducer(by_three, TOTAL)) == []


@pytest.mark.parametrize(
    ("key", "init", "reduce", "finalize", "expected"),
    [
        (lambda x: fail_at_2(x) % 3, 0, None, None, [Failed("Boom(2)"), 9, 5, 5]),
        (None, 0, lambda total, x: total + fail_at_2(x), None, [Failed("Boom(2)"), 9, 5, 5]),
        (None, 0, None, lambda total: fail_at_2(2) if total == 5 else total, [9, Failed("Boom(2)"), 7]),
        (lambda x: [x], 0, None, None, [Failed("TypeError")] * 7),
    ],
)
def test_failures_are_in_their_places_and_leave_the_rest_alone(
    key: Any, init: Any, reduce: Any, finalize: Any, expected: list[Any]
) -> None:
    reducer = ad.Reducer(lambda _: init, reduce or TOTAL.reduce_func, finalize or TOTAL.finalize_func)

    def pipeline() -> ad.Dataset[Any]:
        return ad.Dataset.range(7).group_by_reducer(key or by_three, reducer)

    assert results(pipeline()) == expected
    check_resumes(pipeline)
    check_resumes(lambda: pipeline().shuffle(3, seed=1))


def test_a_first_state_that_failed_is_tried_again_by_the_next_element() -> None:
    tries: Counter[int] = Counter()

    def init(key: int) -> int:
        tries[key] += 1
        if tries[key] == 1 and key == 1:
            raise Boom(key)
        return 0

    reducer = ad.Reducer(init, TOTAL.reduce_func, TOTAL.finalize_func)
    assert results(ad.Dataset.range(7).group_by_reducer(by_three, reducer)) == [Failed("Boom(1)"), 9, 4, 7]


def test_an_error_before_it_passes() -> None:
    ds = ad.Dataset.range(7).map(fail_at_2).group_by_reducer(by_three, TOTAL)
    assert results(ds) == [Failed("Boom(2)"), 9, 5, 5]


def test_an_error_names_function_and_element() -> None:
    reducer = ad.Reducer(lambda _: 0, lambda _, x: fail_at_2(x), lambda x: fail_at_2(2))
    with ad.Dataset.range(3).group_by_reducer(lambda x: 7, reducer).iterate() as elements:
        with pytest.raises(Boom) as first:
            next(elements)
        with pytest.raises(Boom) as second:
            next(elements)
    assert first.value.__notes__[0].startswith("in group_by_reducer(")
    assert first.value.__notes__[0].endswith("element 2")
    assert second.value.__notes__[-1] == "key 7"


def test_a_coroutine_that_nobody_awaits_is_an_error() -> None:
    async def later(*_: Any) -> int:
        return 0

    for reducer in (
        ad.Reducer(lambda key: later(key), TOTAL.reduce_func, TOTAL.finalize_func),
        ad.Reducer(TOTAL.init_func, lambda *parts: later(*parts), TOTAL.finalize_func),
        ad.Reducer(TOTAL.init_func, TOTAL.reduce_func, lambda state: later(state)),
    ):
        with pytest.raises(TypeError, match="async def"):
            list(ad.Dataset.range(1).group_by_reducer(by_three, reducer))
    with pytest.raises(TypeError, match="async def"):
        list(ad.Dataset.range(1).group_by_reducer(lambda x: later(x), TOTAL))


@pytest.mark.parametrize("source", first_by_default(["generator", "unordered", "range", "shuffled"], 2))
def test_goes_on_from_any_place(source: str) -> None:
    def pipeline() -> ad.Dataset[Any]:
        ds: ad.Dataset[Any] = ad.Dataset.range(60)
        if source == "shuffled":
            ds = ds.repeat(2).shuffle(9, seed=1)
        if source == "generator":
            ds = ad.Dataset.from_generator(lambda: iter(range(60)))
        if source == "unordered":
            ds = ds.map(lambda x: x, num_parallel_calls=3, deterministic=False)
        return ds.map(lambda x: 60 // (x % 9) + x).group_by_reducer(lambda x: x % 7, TOTAL)

    check_resumes(pipeline, ordered=source != "unordered")
    check_resumes(lambda: pipeline().shuffle(4, seed=2).repeat(2), ordered=source != "unordered")


def test_goes_on_inside_of_a_flat_map() -> None:
    def pipeline() -> ad.Dataset[Any]:
        ds = ad.Dataset.range(20).map(lambda x: 60 // (x % 9) + x)
        return ad.Dataset.range(3).flat_map(lambda _: ds.group_by_reducer(by_three, TOTAL))

    check_resumes(pipeline)


def test_it_says_that_it_reads_everything_again() -> None:
    ds = ad.Dataset.range(5).group_by_reducer(by_three, TOTAL)
    assert "group_by_reducer() reads everything again" in ds.explain()
    assert ds.cardinality() == ad.UNKNOWN_CARDINALITY


def test_a_share_cannot_be_dealt() -> None:
    def share(count: int) -> ad.Dataset[Any]:
        return ad.Dataset.range(20).shard(count, 0).group_by_reducer(by_three, TOTAL)

    with share(2).iterate() as elements:
        next(elements)
        state = elements.state_dict()
    with pytest.raises(ResumeError, match="group_by_reducer"):
        share(3).iterate(state=ad.checkpoint.merge_states([state, edited(state, shares=[[2, 1]])]))


@pytest.mark.parametrize("position", [3, {"failed": 1, "groups": 0}, {"groups": "x"}, []])
def test_a_position_that_is_none_is_refused(position: Any) -> None:
    ds = ad.Dataset.range(20).group_by_reducer(by_three, TOTAL)
    with ds.iterate() as elements:
        next(elements)
        state = edited(elements.state_dict(), position=position)
    with pytest.raises(ResumeError, match="does not fit this step"):
        list(ad.Dataset.range(20).group_by_reducer(by_three, TOTAL).iterate(state=state))


@pytest.mark.parametrize("reducer", [None, lambda x: x, (1, 2, 3), ad.Reducer])
def test_what_is_no_reducer_is_refused(reducer: Any) -> None:
    with pytest.raises(PlanError, match=r"asyncdata\.Reducer"):
        ad.Dataset.range(3).group_by_reducer(by_three, reducer)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(PlanError, match="needs a function"):
        ad.Dataset.range(3).group_by_reducer(1, TOTAL)  # pyright: ignore[reportArgumentType]
    with pytest.raises(PlanError, match="needs a function"):
        ad.Dataset.range(3).group_by_reducer(by_three, ad.Reducer(0, max, max))  # pyright: ignore[reportArgumentType]


UNORDERED: dict[str, Callable[[], ad.Dataset[Any]]] = {
    "map": lambda: ad.Dataset.range(30).map(lambda x: x, num_parallel_calls=3, deterministic=False),
    "interleave": lambda: ad.Dataset.range(5).interleave(
        lambda x: ad.Dataset.range(6 * x, 6 * x + 6), cycle_length=3, num_parallel_calls=3, deterministic=False
    ),
    "batch": lambda: ad.Dataset.range(30).batch(4, within=60).unbatch(),
}


REDUCER = ad.Reducer(lambda _: 0, lambda total, x: total + (fail_at_2(x % 7) and x), lambda total: total)


@pytest.mark.parametrize("store", ["memory", "file"])
@pytest.mark.parametrize("source", UNORDERED)
def test_resumes_from_a_cache_that_was_filled_from_an_input_without_order(
    source: str, store: str, tmp_path: Path
) -> None:
    """The tickets of cached elements are their numbers, and were those of the input while the cache was filled."""
    expected = Counter(map(repr, results(UNORDERED[source]().group_by_reducer(by_three, REDUCER))))
    for stop in range(1, 8):
        cached = UNORDERED[source]().cache(*[str(tmp_path / str(stop))] * (store == "file"))
        ds = cached.group_by_reducer(by_three, REDUCER)
        with ds.iterate() as elements:
            delivered = taken(elements, stop)
            state = elements.state_dict()
            taken(elements)
        with ds.iterate(state=state) as elements:
            assert Counter(map(repr, delivered + taken(elements))) == expected


def test_batches_that_failed_are_not_made_again_of_other_elements() -> None:
    """Another run gives other batches, as these depend on when elements come."""

    async def read(pause: float, state: Any, most: int) -> tuple[list[Any], Any]:
        async def numbers() -> AsyncIterator[int]:
            for number in range(6):
                await asyncio.sleep(pause)
                yield number

        members = ad.Reducer(lambda _: (), lambda found, batch: (*found, *fail_at_first(batch)), lambda *found: found)
        ds = ad.Dataset.from_async_iterable(numbers).batch(3, within=2).group_by_reducer(len, members)
        async with ds.with_options(ad.Options(placement="current")).iterate(state=state) as elements:
            return await taken_async(elements, most), elements.state_dict()

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        found, state = runner.run(read(0, None, 1))
        assert found == [Failed("Boom([0, 1, 2])")]
        assert runner.run(read(10, state, 9))[0] == [(3, 4, 5)]


def fail_at_first(batch: Any) -> list[int]:
    if min(batch) <= 1:
        raise Boom(batch.tolist())
    return batch.tolist()


def test_earlier_states_of_an_input_without_order_list_what_failed() -> None:
    ds = UNORDERED["map"]().group_by_reducer(by_three, REDUCER)
    earlier = {"failed": [2, 9], "groups": 1}
    with ds.iterate() as elements:
        delivered = taken(elements)
        state = edited(elements.state_dict(), position=earlier, delivered=3)
    with ds.iterate(state=state) as elements:
        found = taken(elements)
        assert Counter(map(repr, found)) == Counter(map(repr, delivered)) - Counter(
            map(repr, [Failed("Boom(2)")] * 2 + [delivered[-3]])
        )
