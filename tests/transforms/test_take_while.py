from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes, check_transform
from tests import reference
from tests.reference import Boom, Failed
from tests.running import WAYS


def below_5(x: int) -> bool:
    return x < 5


async def below_5_async(x: int) -> bool:
    await asyncio.sleep(0)
    return x < 5


def fail_at_2(x: int) -> Any:
    if x == 2:
        raise Boom(x)
    return x < 5


@pytest.mark.parametrize("fn", [below_5, below_5_async])
def test_keeps_its_contract(fn: Any) -> None:
    check_transform(
        lambda ds: ds.take_while(fn),
        lambda items: reference.take_while(items, below_5),
        [(), (1,), (9,), range(3), range(100), [1, 9, 1]],
    )


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("ahead", [0, 100])
def test_a_failure_has_its_place_and_ends_nothing(way: Any, ahead: int) -> None:
    expected = [0, 1, Failed("Boom(2)"), 3, 4]
    assert way(ad.Dataset.range(9).prefetch(ahead).take_while(fail_at_2)) == expected
    failing = ad.Dataset.range(9).map(lambda x: x if fail_at_2(x) or x > 2 else None)
    assert way(failing.prefetch(ahead).take_while(below_5)) == expected


@pytest.mark.parametrize("ahead", [0, 100])
def test_the_predicate_is_not_called_beyond_the_end(ahead: int) -> None:
    seen: list[int] = []
    ds = ad.Dataset.counter().prefetch(ahead).take_while(lambda x: seen.append(x) or x < 5)
    assert list(ds.with_options(ad.Options(optimize=False))) == [0, 1, 2, 3, 4]
    assert seen == [0, 1, 2, 3, 4, 5]


def test_an_endless_input_is_asked_for_one_element_more() -> None:
    seen: list[int] = []
    ds = ad.Dataset.counter().map(lambda x: seen.append(x) or x).take_while(below_5)
    assert list(ds.with_options(ad.Options(optimize=False))) == [0, 1, 2, 3, 4]
    assert seen == [0, 1, 2, 3, 4, 5]


def test_tuples_are_unpacked() -> None:
    assert list(ad.Dataset.from_iterable([(1, 2), (2, 1), (1, 3)]).take_while(lambda a, b: a < b)) == [(1, 2)]


def test_a_verdict_that_is_neither_true_nor_false_is_a_failure() -> None:
    with pytest.raises(ValueError, match="ambiguous") as caught:
        list(ad.Dataset.range(2).take_while(lambda x: np.array([True, False])))
    assert any("in take_while(" in note and "element 0" in note for note in caught.value.__notes__)
    with pytest.raises(TypeError, match="async def"):
        list(ad.Dataset.range(2).take_while(lambda x: below_5_async(x)))


def test_cardinality_and_spec() -> None:
    assert ad.Dataset.range(9).take_while(below_5).cardinality() == ad.UNKNOWN_CARDINALITY
    assert ad.Dataset.counter().take_while(below_5).cardinality() == ad.UNKNOWN_CARDINALITY
    assert len(ad.Dataset.range(0).take_while(below_5)) == 0
    assert ad.Dataset.range(9).take_while(below_5).element_spec == ad.TensorSpec((), "int64")


@pytest.mark.parametrize("fn", [below_5, below_5_async, fail_at_2])
def test_goes_on_anywhere_also_at_the_end(fn: Any) -> None:
    check_resumes(lambda: ad.Dataset.range(40).take_while(fn))
    check_resumes(lambda: ad.Dataset.range(40).map(lambda x: x // 8).take_while(fn).shuffle(7, seed=1).batch(3))


def test_what_is_no_function_is_refused_where_it_is_given() -> None:
    with pytest.raises(ad.PlanError, match="take_while needs a function"):
        ad.Dataset.range(1).take_while(3)  # type: ignore[arg-type]
