"""Results that this process cannot unpickle: each fails alone, in its place, and names its step."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

import asyncdata as ad
from tests.processes.test_map import outcomes


class Tag(str):
    """A string whose constructor takes what pickle does not give it."""

    __slots__ = ()

    def __new__(cls, number: int, more: int) -> Tag:  # noqa: PYI034
        return super().__new__(cls, f"{number}{more}")


def tagged(number: Any) -> Any:
    return Tag(number, 1) if number % 100 == 5 else number


def all_tagged(numbers: Any) -> list[Any]:
    return [tagged(number) for number in numbers.tolist()]


@pytest.mark.parametrize("batch", [None, 10])
def test_a_result_that_cannot_be_unpickled_fails_alone(batch: int | None) -> None:
    fn = tagged if batch is None else all_tagged
    found = outcomes(ad.Dataset.range(300).map(fn, 2, executor="process", batch=batch))
    assert len(found) == 300
    for number, one in enumerate(found):
        if number % 100 != 5:
            assert one == number
            continue
        kind, text, notes = one
        assert kind is TypeError
        assert "missing 1 required positional argument" in text
        assert any("element" in note and "map(" in note for note in notes)


@pytest.mark.parametrize("batch", [None, 4])
def test_an_element_that_a_worker_cannot_unpickle_fails_alone(batch: int | None) -> None:
    elements = ad.Dataset.from_iterable([Tag(number, 1) if number == 5 else str(number) for number in range(12)])
    fn = str.upper if batch is None else list
    found = outcomes(elements.map(fn, 2, executor="process", batch=batch))
    places = [5] if batch is None else [4, 5, 6, 7]
    assert [one for place, one in enumerate(found) if place not in places] == [
        str(number) for number in range(12) if number not in places
    ]
    kind, _, notes = found[5]
    assert kind is TypeError
    assert any("element 5" in note for note in notes) or batch


def test_a_result_that_cannot_be_unpickled_breaks_no_executor() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("forkserver")) as executor:
        found = outcomes(ad.Dataset.range(30).map(tagged, 1, executor=executor))
        assert executor.submit(abs, -1).result() == 1
    assert found[:5] + found[6:] == [*range(5), *range(6, 30)]
    assert found[5][0] is TypeError
    assert "element 5" in found[5][2][0]
