from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from tests.reference import Boom


@pytest.mark.parametrize("options", [ad.Options(), ad.Options(placement="current"), ad.Options(optimize=False)])
def test_folds_from_the_left(options: ad.Options) -> None:
    assert ad.Dataset.range(5).with_options(options).reduce("", lambda state, x: f"({state}{x})") == "(((((0)1)2)3)4)"


def test_of_nothing_is_the_initial_state() -> None:
    assert ad.Dataset.range(0).reduce(7, operator.add) == 7


def test_a_tuple_element_is_one_argument_beside_the_state() -> None:
    assert ad.Dataset.from_iterable([(1, 2), (3, 4)]).reduce(0, lambda state, pair: state + pair[0] * pair[1]) == 14


def test_a_state_of_any_structure() -> None:
    count, total = ad.Dataset.range(5).reduce((0, np.float64(0)), lambda state, x: (state[0] + 1, state[1] + x))
    assert (count, total) == (5, 10.0)


def test_the_first_failure_is_raised() -> None:
    seen: list[int] = []

    def fail_at_2(x: int) -> int:
        if x == 2:
            raise Boom(x)
        return x

    with pytest.raises(Boom, match="2"):
        ad.Dataset.range(5).map(fail_at_2).reduce(0, lambda state, x: seen.append(x))
    assert seen == [0, 1]


def test_a_failing_function_is_raised_as_it_is() -> None:
    def fail(state: Any, x: Any) -> Any:
        raise Boom(x)

    with pytest.raises(Boom):
        ad.Dataset.range(5).reduce(0, fail)


def test_leaves_nothing_when_it_fails() -> None:
    with pytest.raises(ZeroDivisionError):
        ad.Dataset.counter().prefetch(5).reduce(0, lambda state, x: 1 // (x - 3))
