"""A source some of whose calls fail, once, loses and repeats no element, whatever its elements go through."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from tests.laws.pipelines import Offsets
from tests.reference import Boom
from tests.running import MOST

COUNT = 30

STEPS: dict[str, Callable[[ad.Dataset[Any]], ad.Dataset[Any]]] = {
    "map": lambda ds: ds.map(lambda number: number, num_parallel_calls=2),
    "shuffle": lambda ds: ds.shuffle(7, seed=1),
    "batch": lambda ds: ds.batch(4),
    "window": lambda ds: ds.window(3).flat_map(lambda rows: rows),
    "interleave": lambda ds: ds.interleave(ad.Dataset.from_tensors, cycle_length=3, num_parallel_calls=2),
    "prefetch": lambda ds: ds.prefetch(5),
}


class Unsteady(Offsets):
    """Gives integers; a call whose number is among `failing` raises, and the next one gives what that would have."""

    def __init__(self, failing: set[int], calls: list[int]) -> None:
        super().__init__([*range(COUNT)])
        self.failing, self.calls = failing, calls

    def __next__(self) -> Any:
        self.calls[0] += 1
        if self.calls[0] in self.failing:
            raise Boom("now")
        return super().__next__()


def read_leg(ds: ad.Dataset[Any], most: int, state: Any) -> tuple[list[int], Any, bool]:
    """Return the integers in at most so many elements, the state then, and whether the pipeline has ended.

    A failure among elements that are read again, and are not delivered, is a `ResumeError`: then it is resumed anew.
    """
    found: list[int] = []
    with ds.iterate(state=state) as elements:
        for _ in range(most):
            try:
                found += map(int, np.ravel(next(elements)))
            except ad.ResumeError:
                break
            except Boom:
                continue
            except ad.StageError:  # in the place of what failed before the state was saved
                continue
            except StopIteration:
                return found, elements.state_dict(), True
        return found, elements.state_dict(), False


class Readings:
    """An iterable, plain and async, that begins anew each time."""

    def __init__(self, failing: set[int], calls: list[int]) -> None:
        self.arguments = failing, calls

    def __iter__(self) -> Unsteady:
        return Unsteady(*self.arguments)

    __aiter__ = __iter__


MAKES: dict[str, Callable[[Readings], ad.Dataset[Any]]] = {
    "from_generator": lambda readings: ad.Dataset.from_generator(lambda: iter(readings)),
    "from_iterable": ad.Dataset.from_iterable,
    "from_async_iterable": ad.Dataset.from_async_iterable,
}


@given(
    make=st.sampled_from([*MAKES]),
    names=st.lists(st.sampled_from([*STEPS]), max_size=2, unique=True),
    failing=st.sets(st.integers(1, 3 * COUNT), max_size=6),
    lengths=st.lists(st.integers(0, 25), max_size=4),
)
def test_each_element_comes_once_though_calls_fail(
    make: str, names: list[str], failing: set[int], lengths: list[int]
) -> None:
    assert_each_comes_once(make, names, failing, lengths)


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize(
    ("names", "failing", "lengths"),
    [(["shuffle"], {1}, [1]), (["map", "batch"], {1, 2, 8}, [4]), (["prefetch", "shuffle"], {31}, [9])],
)
def test_what_a_step_held_beside_a_failed_call_comes_once(
    make: str, names: list[str], failing: set[int], lengths: list[int]
) -> None:
    assert_each_comes_once(make, names, failing, lengths)


def assert_each_comes_once(make: str, names: list[str], failing: set[int], lengths: list[int]) -> None:
    calls, found, state = [0], list[int](), None
    for most in [*lengths, *[MOST] * (len(failing) + 1)]:
        ds = MAKES[make](Readings(failing, calls))
        for name in names:
            ds = STEPS[name](ds)
        given_now, state, ended = read_leg(ds, most, state)
        state = json.loads(json.dumps(state))
        found += given_now
        if ended:
            break
    assert sorted(found) == [*range(COUNT)]
    assert found == [*range(COUNT)] or "shuffle" in names
