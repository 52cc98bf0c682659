from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_transform
from tests.reference import Boom, Failed
from tests.running import WAYS, results


def test_keeps_its_contract() -> None:
    check_transform(
        lambda ds: ds.filter(lambda x: x % 3 == 0),
        lambda items: [x for x in items if x % 3 == 0],
        [(), (1,), range(100)],
    )


def test_a_tuple_is_unpacked() -> None:
    assert list(ad.Dataset.from_iterable([(1, 2), (2, 1)]).filter(lambda a, b: a < b)) == [(1, 2)]


@pytest.mark.parametrize("verdict", [True, np.True_, np.array(True), 1])
def test_every_kind_of_truth(verdict: Any) -> None:
    assert list(ad.Dataset.range(2).filter(lambda x: verdict)) == [0, 1]


def test_none_and_falsy_elements_stay() -> None:
    items = [None, 0, "", False, np.zeros(0)]
    assert len(list(ad.Dataset.from_iterable(items).filter(lambda x: True))) == len(items)


def test_a_long_run_of_nothing_ends() -> None:
    assert list(ad.Dataset.range(20_000).filter(lambda x: x == 19_999)) == [19_999]
    assert list(ad.Dataset.range(20_000).filter(lambda x: False)) == []


def test_infinite_input() -> None:
    assert list(ad.Dataset.counter().filter(lambda x: x % 1000 == 999).take(2)) == [999, 1999]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_failing_predicate_fails_in_place(way: Any) -> None:
    def keep(x: int) -> bool:
        if x == 2:
            raise Boom(x)
        return x != 1

    assert way(ad.Dataset.range(5).filter(keep)) == [0, Failed("Boom(2)"), 3, 4]


def test_a_verdict_that_is_neither_true_nor_false_fails_in_place() -> None:
    """An array of three truths has none of its own: the element fails, not the pipeline."""
    ds = ad.Dataset.range(3).filter(lambda x: np.ones(3) if x == 1 else True)
    assert results(ds) == [0, Failed("ValueError"), 2]


def test_failures_of_the_input_pass() -> None:
    def fail(x: int) -> int:
        raise Boom(x)

    assert results(ad.Dataset.range(2).map(fail).filter(lambda x: False)) == [Failed("Boom(0)"), Failed("Boom(1)")]


def test_a_coroutine_predicate_is_awaited() -> None:
    async def keep(x: int) -> bool:
        return x % 2 == 0

    assert list(ad.Dataset.range(5).filter(keep)) == [0, 2, 4]


def test_the_note_names_stage_and_element_of_the_source() -> None:
    def keep(x: int) -> bool:
        if x == 4:
            raise Boom(x)
        return False

    with pytest.raises(Boom) as caught:
        list(ad.Dataset.range(9).filter(keep))
    assert caught.value.__notes__ == [f"in filter(keep) at test_filter.py:{keep.__code__.co_firstlineno}, element 4"]


def test_cardinality_is_unknown() -> None:
    assert ad.Dataset.range(3).filter(lambda x: True).cardinality() == ad.UNKNOWN_CARDINALITY


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises((ad.PlanError, TypeError)):
        ad.Dataset.range(1).filter(None)  # type: ignore[arg-type]


def test_a_plain_function_that_returns_a_coroutine_is_told_so() -> None:
    async def even(x: int) -> bool:
        return x % 2 == 0

    found = results(ad.Dataset.range(20).prefetch(9).filter(lambda x: even(x)))
    assert found == [Failed("TypeError")] * 20


def test_a_stop_iteration_is_a_failure_in_its_place() -> None:
    def stop_at_2(x: int) -> bool:
        if x == 2:
            raise StopIteration
        return True

    found = results(ad.Dataset.range(5).prefetch(9).filter(stop_at_2))
    assert found == [0, 1, Failed("RuntimeError"), 3, 4]
