"""What a plan knows to be wrong is an error where the method is called."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncdata as ad


class Pair(NamedTuple):
    a: Any
    b: Any


def one(x: Any) -> Any:
    return x


def two(x: Any, y: Any) -> Any:
    return x, y


async def awaited(x: Any) -> Any:
    return x


def with_rng(x: Any, rng: Any) -> Any:
    return x


NUMBERS = ad.Dataset.range(4)
PAIRS = ad.Dataset.from_tensor_slices((np.arange(4), np.arange(4)))
METHODS = ["map", "filter", "flat_map", "interleave", "distinct"]


@pytest.mark.parametrize("method", METHODS)
def test_a_function_of_another_number_of_arguments_is_refused(method: str) -> None:
    with pytest.raises(ad.PlanError, match=rf"{method}\(two\) at test_static_checks.*one argument.*missing.*'y'"):
        getattr(NUMBERS, method)(two)
    with pytest.raises(ad.PlanError, match=rf"{method}\(one\).*2 arguments, one for each part of a tuple.*too many"):
        getattr(PAIRS, method)(one)


@pytest.mark.parametrize("ds", [PAIRS, PAIRS.batch(2), PAIRS.shuffle(2).take(2), NUMBERS.enumerate()], ids=repr)
def test_it_is_known_behind_transformations(ds: ad.Dataset[Any]) -> None:
    with pytest.raises(ad.PlanError, match="2 arguments"):
        ds.map(awaited)
    ds.map(two)


def test_functions_of_batches_and_with_random_numbers() -> None:
    with pytest.raises(ad.PlanError, match="2 arguments"):
        PAIRS.map(one, batch=2)
    with pytest.raises(ad.PlanError, match="and rng="):
        NUMBERS.map(one, rng=True)
    NUMBERS.map(with_rng, rng=True)
    with pytest.raises(ad.PlanError, match="one argument: missing a required argument: 'rng'"):
        NUMBERS.map(with_rng)


@pytest.mark.parametrize(
    "fn", [one, lambda *x: x, lambda x, y=1: x, partial(two, 1), awaited, str, print, np.sqrt, int]
)
def test_what_can_be_called_is_not_refused(fn: Any) -> None:
    NUMBERS.map(fn)


def test_a_named_tuple_is_one_argument() -> None:
    ad.Dataset.from_tensor_slices(Pair(np.arange(2), np.arange(2))).map(one)


def test_where_elements_are_not_known_nothing_is_refused() -> None:
    NUMBERS.map(one).map(two)
    ad.Dataset.from_iterable([(1, 2)]).map(two)


def test_structures_that_do_not_match_are_not_concatenated() -> None:
    with pytest.raises(ad.PlanError, match="concatenate: elements of the first are TensorSpec.*of the second"):
        NUMBERS.concatenate(PAIRS)
    named = ad.Dataset.from_tensor_slices({"a": [1.0], "b": [2]})
    with pytest.raises(ad.PlanError, match="'b'"):
        named.concatenate(ad.Dataset.from_tensor_slices({"a": [1], "c": [2]}))
    assert len(list(named.concatenate(ad.Dataset.from_tensor_slices({"b": [1], "a": [2]})))) == 2


def test_what_is_not_known_is_concatenated() -> None:
    assert list(NUMBERS.take(1).concatenate(ad.Dataset.from_iterable(["x"]))) == [0, "x"]
