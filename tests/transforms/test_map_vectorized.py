"""map(vectorized=True): a function that also takes batches is called for each, and nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes
from tests.running import WAYS

AS_WRITTEN = ad.Options(disabled_rules=("map_vectorisation",))


def halve(x: Any) -> Any:
    return x / 2


def refuse_sevens(x: Any) -> Any:
    if np.any(np.asarray(x) % 7 == 3):
        raise ValueError(f"no {x}")
    return x * 10


def outcomes(ds: ad.Dataset[Any]) -> list[Any]:
    """Return batches as lists, and errors as their types, words and notes."""
    found: list[Any] = []
    elements = iter(ds)
    while True:
        try:
            found.append(next(elements).tolist())
        except StopIteration:
            return found
        except Exception as error:
            found.append((type(error), str(error), error.__notes__))


def test_the_function_is_called_once_for_each_batch() -> None:
    given: list[Any] = []
    ds = ad.Dataset.range(10).map(lambda x: given.append(x) or x, vectorized=True).batch(4)
    assert [batch.tolist() for batch in ds] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [batch.tolist() for batch in given] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_without_a_batch_it_is_called_for_each_element() -> None:
    assert list(ad.Dataset.range(3).map(halve, vectorized=True)) == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("drop", [False, True])
def test_what_fails_is_an_element_in_its_place(way: Any, drop: bool) -> None:
    ds = ad.Dataset.range(40).map(refuse_sevens, vectorized=True).batch(4, drop)
    expected = outcomes(ds.with_options(AS_WRITTEN))
    assert outcomes(ds) == expected
    assert len(way(ds)) == len(expected)
    assert (ValueError, "no 3", expected[0][2]) == expected[0]


def test_failures_of_the_input_pass_in_their_places() -> None:
    ds = ad.Dataset.range(30).map(refuse_sevens).map(halve, vectorized=True).batch(3)
    assert outcomes(ds) == outcomes(ds.with_options(AS_WRITTEN))


def test_structures_and_what_does_not_stack() -> None:
    def turned(image: Any, name: Any) -> Any:
        return {"image": image[..., ::-1], "name": name}

    rows = [(np.arange(3) + i, f"#{i}") for i in range(5)]
    (first, _) = ad.Dataset.from_iterable(rows).map(turned, vectorized=True).batch(3)
    assert first["image"].tolist() == [[2, 1, 0], [3, 2, 1], [4, 3, 2]]
    assert first["name"].tolist() == ["#0", "#1", "#2"]
    ragged = ad.Dataset.from_iterable([np.arange(2), np.arange(3), np.arange(4)]).map(np.sum, vectorized=True)
    assert [batch.tolist() for batch in ragged.batch(2)] == [[1, 3], [6]]


def test_another_number_of_results_is_taken_for_none() -> None:
    def first_of(x: Any) -> Any:
        return x[:1] if isinstance(x, np.ndarray) else x

    (only,) = ad.Dataset.range(3).map(first_of, vectorized=True).batch(3)
    assert only.tolist() == [0, 1, 2]


def test_goes_on_anywhere_with_the_rule_or_without() -> None:
    check_resumes(lambda: ad.Dataset.range(40).map(refuse_sevens, vectorized=True).batch(3).shuffle(4, seed=1))
    ds = ad.Dataset.range(40).map(refuse_sevens, vectorized=True).batch(3)
    for options, others in [(ad.Options(), AS_WRITTEN), (AS_WRITTEN, ad.Options())]:
        for count in range(1, 12):
            with ds.with_options(options).iterate() as elements:
                begun = [outcome(elements) for _ in range(count)]
                state = elements.state_dict()
            with ds.with_options(others).iterate(state=state) as elements:
                rest = outcomes_of(elements)
            assert begun + rest == outcomes_of(iter(ds))


def outcome(elements: Any) -> Any:
    try:
        return next(elements).tolist()
    except ValueError as error:
        return str(error)


def outcomes_of(elements: Any) -> list[Any]:
    found: list[Any] = []
    while True:
        try:
            found.append(outcome(elements))
        except StopIteration:
            return found


@pytest.mark.parametrize("how", [{"rng": True}, {"batch": 2}])
def test_what_it_cannot_be_said_of_is_refused(how: Any) -> None:
    with pytest.raises(ad.PlanError, match="vectorized"):
        ad.Dataset.range(3).map(lambda x, rng=None: x, vectorized=True, **how)


def test_a_coroutine_function_is_refused() -> None:
    async def fetch(x: int) -> int:
        return x

    with pytest.raises(ad.PlanError, match="vectorized"):
        ad.Dataset.range(3).map(fetch, vectorized=True)
