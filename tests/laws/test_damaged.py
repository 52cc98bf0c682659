"""A damaged state is refused, or gives an iterator that works: never another error, and never none at all."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.errors import AsyncDataError
from asyncdata.iterator import ended_by
from tests.laws.pipelines import Pipeline, pipelines
from tests.laws.test_resume import run
from tests.marks import first_by_default
from tests.states import edited

WRONG = st.sampled_from(
    [None, True, "x", "", "end", -1, 0, 1, 2, 7, 300, 1.5, [], [0], ["x"], {}, {"from": 3}, [[], 1]]
)

MOST = 400
"""What a state says may be possible, and give more elements than the pipeline has."""


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in a JSON value: what holds it, and under which name."""
    for name in value if isinstance(value, dict) else range(len(value)):
        yield value, name
        if isinstance(value[name], (list, dict)):
            yield from places(value[name])


Damage = tuple[bool, int, str, Any]
"""Whether it is in the position, at which of all places in turn, of what kind, and what stands there then."""

DAMAGES = st.lists(
    st.tuples(
        st.sampled_from([True] * 4 + [False]),
        st.integers(0, 999),
        st.sampled_from(["change"] * 3 + ["leave out", "twice"]),
        WRONG,
    ),
    min_size=1,
    max_size=2,
)


def damaged(state: dict[str, Any], damages: list[Damage]) -> dict[str, Any]:
    """A state in which one or two things were changed, left out or put twice."""
    for in_position, place, how, wrong in damages:
        whole = {"position": state["position"]} if in_position and "position" in state else state
        found = [*places(whole)]
        holder, name = found[place % len(found)]
        if how == "twice" and isinstance(holder, list):
            holder.insert(name, holder[name])
        elif how == "leave out" and holder is not whole:
            del holder[name]
        else:
            holder[name] = copy.deepcopy(wrong)
        state |= whole
    return state


def read_on(pipe: Pipeline, state: Any) -> None:
    """Go on from a state: what ends the pipeline, if not its end, must be an error that we document."""
    try:
        elements = pipe.build().iterate(state=state)
    except ad.ResumeError:
        return
    with elements:
        for _ in range(MOST):
            try:
                next(elements)
            except StopIteration:
                return
            except Exception as error:
                if ended_by(elements, error):
                    if not isinstance(error, AsyncDataError):
                        raise
                    return


@given(pipe=pipelines(), count=st.integers(0, 20), damages=DAMAGES)
def test_a_damaged_state_is_refused_or_works(pipe: Pipeline, count: int, damages: list[Damage]) -> None:
    _, state = run(pipe.build(), (count, False, "thread", ad.Options()), None)
    read_on(pipe, damaged(edited(json.loads(json.dumps(state))), damages))


def numbers(count: int = 40) -> ad.Dataset:
    return ad.Dataset.range(count)


def vectors(lengths: int) -> ad.Dataset:
    return numbers().map(lambda number: np.zeros(number % lengths + 1))


COUNTING = {
    "unique": numbers().unique(),
    "window": numbers().window(2, shift=5),
    "assert_cardinality": numbers().assert_cardinality(40),
    "pad_to_cardinality": numbers().pad_to_cardinality(50),
    "ignore_errors": numbers().ignore_errors(max_errors=3),
    "rejection_resample": numbers().rejection_resample(lambda number: number % 2, [0.5, 0.5], seed=1),
    "rebatch": numbers().batch(6).rebatch([2, 5]),
    "unbatch": numbers().batch(6).unbatch(),
    "bucket_by_token_count": vectors(5).bucket_by_token_count(8),
    "bucket_by_sequence_length": vectors(9).bucket_by_sequence_length(len, [3, 6], [2, 2, 2]),
    "group_by_window": numbers().group_by_window(lambda number: number % 3, lambda _, rows: rows.batch(4), 4),
    "balance": numbers().balance(lambda number: number % 7, 2, 3, 1, steps=2),
    "shard": numbers().shard(3, 1),
    "shard(drop_remainder)": numbers().shard(3, 1, drop_remainder=True),
    "enumerate": numbers().enumerate(),
    "shuffle": numbers().shuffle(5, seed=1),
    "shuffle(all)": numbers(12).shuffle(20, seed=1),
    "repeat": numbers(5).repeat(9),
    "interleave": numbers(5).interleave(lambda _: numbers(6), cycle_length=2),
    "flat_map": numbers(5).flat_map(lambda _: numbers(6)),
    "sample_from_datasets": ad.Dataset.sample_from_datasets([numbers(), numbers()], seed=1),
    "take": numbers().take(30),
    "take of counter": ad.Dataset.counter().take(30),
    "skip": numbers().skip(3),
    "scan": numbers().scan(0, lambda state, number: (state + number, state)),
    "distinct": numbers().distinct(lambda number: number % 9),
    "concatenate": numbers(5).concatenate(numbers(5)),
    "cache": numbers().cache(),
    "random": ad.Dataset.random(seed=1).take(40),
}


@pytest.mark.parametrize("wrong", first_by_default([-1, 1_000_000_000, -1_000_000], 2))
@pytest.mark.parametrize("name", COUNTING)
def test_what_is_counted_wrongly_is_refused_or_comes_to_an_end(name: str, wrong: int) -> None:
    ds = COUNTING[name]
    for count in (0, 1, 4, 11):
        with ds.iterate() as elements:
            for _ in range(count):
                next(elements, None)
            state = edited(json.loads(json.dumps(elements.state_dict())))
        for place in range(len([*places(state)])):
            changed = copy.deepcopy(state)
            holder, key = [*places(changed)][place]
            if type(holder[key]) is int:
                holder[key] = wrong
                assert comes_to_an_end(ds, changed), changed


def comes_to_an_end(ds: ad.Dataset, state: Any) -> bool:
    """Whether a state is refused, or gives elements until there are no more, or are enough."""
    try:
        with ds.iterate(state=state) as elements:
            return len(list(islice(elements, 100))) <= 100
    except AsyncDataError:
        return True


def test_shares_that_are_not_those_of_the_pipeline_are_refused() -> None:
    ds = numbers().shard(3, 1)
    with ds.iterate() as elements:
        next(elements)
        state = elements.state_dict()
    for shares in ([], [[3, 1], [3, 1]]):
        with pytest.raises(ad.ResumeError, match=f"{len(shares)} shares, but the pipeline has 1"):
            ds.iterate(state=edited(state, shares=shares))
