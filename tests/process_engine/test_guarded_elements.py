"""Results that this process cannot unpickle: each fails alone, in its place, and names its step."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from tests.executors.process.test_map import outcomes


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


BESIDE = ad.Options(placement="process")


class Quitting:
    """What ends the process that unpickles it, if that is let happen."""

    def __setstate__(self, state: object) -> None:
        raise SystemExit("enough")

    def __getstate__(self) -> int:
        return 1


@dataclass
class Pair:
    x: Any
    y: Any


def fifth(make: Callable[[int], Any]) -> ad.Dataset[Any]:
    """Return 0 to 9 with something else in place of 5."""
    return ad.Dataset.range(10).map(lambda x: make(x) if x == 5 else x)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda x: Tag(x, 1), TypeError),
        (lambda x: {"a": [Tag(x, 1)]}, TypeError),
        (lambda x: Pair(x, Tag(x, 1)), TypeError),
        (lambda x: np.array([Tag(x, 1), 1], object), TypeError),
        (lambda _: Quitting(), SystemExit),
    ],
)
def test_an_element_that_the_consumer_cannot_unpickle_fails_alone(make: Callable[[int], Any], kind: type) -> None:
    numbers = [0, 1, 2, 3, 4, 6, 7, 8, 9]
    ds = fifth(make).with_options(BESIDE)
    elements = ds.iterate()
    assert [next(elements) for _ in range(5)] == numbers[:5]
    with pytest.raises(kind) as caught:
        next(elements)
    state = elements.state_dict()
    assert [*elements] == numbers[5:]
    step, reason = caught.value.__notes__
    assert step.startswith("in the transfer of elements of map(")
    assert step.endswith("(placement='process'), element 5")
    assert "cannot be unpickled in this process" in reason
    with ds.iterate(state=state) as rest:
        assert [*rest] == numbers[5:]


@pytest.mark.parametrize("end", [lambda ds: ds, lambda ds: ds.prefetch(2), lambda ds: ds.repeat(1).prefetch(1)])
def test_ignore_errors_at_the_end_leaves_out_what_cannot_be_transferred(
    end: Callable[[ad.Dataset[Any]], ad.Dataset[Any]],
) -> None:
    def odd(x: int) -> Any:
        return {2: Tag(2, 1), 3: (lock_like(), 1)}.get(x, Pair(x, 1))

    ds = end(ad.Dataset.range(6).map(odd).ignore_errors(max_errors=2)).with_options(BESIDE)
    assert list(ds) == [Pair(x, 1) for x in (0, 1, 4, 5)]
    over = end(ad.Dataset.range(6).map(odd).ignore_errors(max_errors=1)).with_options(BESIDE)
    found = outcomes(over)
    assert [one for one in found if isinstance(one, Pair)] == [Pair(x, 1) for x in (0, 1, 4, 5)]
    assert found[2][0] is TypeError
    assert any("element 3" in note for note in found[2][2])


def lock_like() -> Any:
    return get_context("spawn").Lock()


def test_a_batch_of_what_cannot_be_unpickled_fails_alone() -> None:
    found = outcomes(fifth(lambda x: Tag(x, 1)).map(str_of).batch(2).with_options(BESIDE))
    assert [row.tolist() for row in found[:2] + found[3:]] == [["0", "1"], ["2", "3"], ["6", "7"], ["8", "9"]]
    assert found[2][0] is TypeError


def str_of(x: Any) -> Any:
    return x if isinstance(x, Tag) else str(x)


def test_elements_apart_are_the_same_and_share_no_memory() -> None:
    def made(x: int) -> Any:
        return Pair(np.full(1000, x), np.arange(3))

    found = list(ad.Dataset.range(20).map(made).with_options(BESIDE))
    for x, pair in enumerate(found):
        assert pair.x.tolist() == [x] * 1000
        assert pair.y.tolist() == [0, 1, 2]
        pair.x[:] = -1
    assert pickle.loads(pickle.dumps(found[0])).x[0] == -1


def test_a_list_that_holds_itself_arrives() -> None:
    def circle(x: int) -> Any:
        found: list[Any] = [x]
        found.append(found)
        return found

    found = list(ad.Dataset.range(3).map(circle).with_options(BESIDE))
    assert [one[0] for one in found] == [0, 1, 2]
    assert all(one[1] is one for one in found)
