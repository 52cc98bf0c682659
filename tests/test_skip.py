"""Leaving out elements of an iterator: not reading them where the plan tells where the next one is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import asyncdata as ad
from asyncdata import PlanError
from asyncdata.checkpoint import merge_states
from tests.reference import Boom
from tests.test_resume import EACH_WAY, Way

pytestmark = pytest.mark.usefixtures("nothing_left")


class Counted:
    """A source that knows which elements were asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> int:
        self.asked.append(index)
        return index


@EACH_WAY
def test_what_is_skipped_is_not_read_where_the_plan_tells_where_elements_are(way: Way) -> None:
    source = Counted()
    ds = ad.Dataset.from_source(source, num_parallel_calls=2).shuffle(seed=1).shard(2, 1).batch(4).repeat(3)
    whole, ds = ds.with_options(ad.Options()), ds.with_options(ad.Options(placement=way.placement))

    async def collect() -> list[Any]:
        async with ds.iterate() as batches:
            batches.skip(3 * 1250 - 2)
            return [batch.tolist() async for batch in batches]

    if way.is_async:
        rest = asyncio.run(collect())
    else:
        with ds.iterate() as batches:
            batches.skip(3 * 1250 - 2)
            rest = [batch.tolist() for batch in batches]
    assert sorted(source.asked) == sorted(x for batch in rest for x in batch)
    assert rest == [batch.tolist() for batch in whole][-2:]


def test_what_is_skipped_is_read_and_dropped_where_only_reading_tells() -> None:
    ds = ad.Dataset.range(100).filter(lambda x: x % 3 == 0).batch(2)
    with ds.iterate() as batches:
        first = next(batches).tolist()
        batches.skip(2)
        state = batches.state_dict()
        batches.skip(1)
        later = next(batches).tolist()
        assert batches.state_dict()["delivered"] == 5
    assert (first, later) == ([0, 3], [24, 27])
    assert next(ds.iterate(state=state)).tolist() == [18, 21]


def test_failures_that_are_skipped_are_not_raised() -> None:
    def fail(x: int) -> int:
        raise Boom(x)

    with ad.Dataset.range(6).map(fail).concatenate(ad.Dataset.range(3)).iterate() as elements:
        elements.skip(7)
        assert list(elements) == [1, 2]


def test_skipping_past_the_end_is_the_end() -> None:
    for ds in (ad.Dataset.range(5), ad.Dataset.range(5).filter(bool), ad.Dataset.range(5).repeat(2)):
        with ds.iterate() as elements:
            next(elements)
            elements.skip(1_000)
            assert list(elements) == []
            elements.skip(3)
            assert list(elements) == []


def test_some_at_hand_are_skipped_without_starting_anew() -> None:
    calls: list[int] = []
    with ad.Dataset.range(1_000).map(lambda x: calls.append(x) or x).iterate() as elements:
        taken = []
        for x in elements:
            taken.append(x)
            elements.skip(1)
        assert taken == list(range(0, 1_000, 2))


def test_after_shares_were_dealt_anew_elements_are_counted_by_reading() -> None:
    def share(count: int, index: int) -> ad.Dataset[int]:
        return ad.Dataset.range(40).shard(count, index)

    states = []
    for index in range(2):
        with share(2, index).iterate() as elements:
            elements.skip(index * 4)
            states.append(elements.state_dict())
    with share(1, 0).iterate(state=merge_states(states)) as elements:
        next(elements)
        state = elements.state_dict()
        everything = list(elements)
    with share(1, 0).iterate(state=state) as elements:
        elements.skip(5)
        assert list(elements) == everything[5:]


@pytest.mark.parametrize("count", [-1, "x", None, 1.5])
def test_only_a_number_of_elements_can_be_skipped(count: Any) -> None:
    with pytest.raises(PlanError, match=r"skip\(count=\) must be"):
        ad.Dataset.range(3).iterate().skip(count)
