"""batch(within=): a batch is given when it is full, or so many seconds after its first element came."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes, check_transform, virtual_time
from tests import reference
from tests.reference import Boom
from tests.running import WAYS, results

HERE = ad.Options(placement="current", disabled_rules=("inject_prefetch",))

Timed = list[tuple[float, list[int]]]


class Arrivals:
    """Numbers, each of which comes so many seconds after the one before."""

    def __init__(self, *pauses: float) -> None:
        self.pauses = pauses

    async def __aiter__(self) -> AsyncIterator[int]:
        for number, pause in enumerate(self.pauses):
            await asyncio.sleep(pause)
            yield number


def timed(ds: ad.Dataset[Any], pause: float = 0.0) -> Timed:
    """When each batch comes, in seconds, to a consumer that pauses after each, and what is in it."""

    async def read() -> Timed:
        found = Timed()
        async for batch in ds.with_options(HERE):
            found.append((round(asyncio.get_running_loop().time(), 6), batch.tolist()))
            await asyncio.sleep(pause)
        return found

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        return runner.run(read())


def test_keeps_its_contract() -> None:
    check_transform(lambda ds: ds.batch(3, within=1e6), lambda items: reference.batch(items, 3))


@pytest.mark.parametrize("read", WAYS, ids=lambda way: way.__name__)
def test_batches_are_full_where_elements_come_at_once(read: Any) -> None:
    assert [len(batch) for batch in read(ad.Dataset.range(100).batch(32, within=60))] == [32, 32, 32, 4]


def test_a_batch_is_given_when_it_is_due() -> None:
    arrivals = ad.Dataset.from_async_iterable(Arrivals(5, 1, 0.5, 1, 20, 0, 7, 100))
    assert timed(arrivals.batch(3, within=2)) == [
        (6.5, [0, 1, 2]),
        (9.5, [3]),
        (29.5, [4, 5]),
        (36.5, [6]),
        (134.5, [7]),
    ]


def test_it_waits_for_the_first_element_as_long_as_it_takes() -> None:
    assert timed(ad.Dataset.from_async_iterable(Arrivals(1e6, 1, 1e6)).batch(9, within=3)) == [
        (1e6 + 3, [0, 1]),
        (2e6 + 1, [2]),
    ]


def test_a_full_batch_waits_for_nothing() -> None:
    arrivals = Arrivals(*[1] * 6)
    assert timed(ad.Dataset.from_async_iterable(arrivals).batch(2, within=50)) == [
        (2, [0, 1]),
        (4, [2, 3]),
        (6, [4, 5]),
    ]


def test_what_comes_while_the_consumer_works_is_in_one_batch() -> None:
    arrivals = ad.Dataset.from_async_iterable(Arrivals(*[1.5] * 8)).prefetch(100)
    assert timed(arrivals.batch(4, within=1), pause=6) == [(2.5, [0]), (8.5, [1, 2, 3, 4]), (14.5, [5, 6, 7])]


def test_at_random_no_element_waits_longer_and_none_is_lost() -> None:
    rng = random.Random(1)
    for _ in range(50):
        pauses = [rng.choice([0, 0, 0.3, 1.7, 9]) for _ in range(rng.randrange(30))]
        came = [sum(pauses[: place + 1]) for place in range(len(pauses))]
        size = rng.randrange(1, 6)
        found = timed(ad.Dataset.from_async_iterable(Arrivals(*pauses)).batch(size, within=2))
        assert [x for _, batch in found for x in batch] == list(range(len(pauses)))
        for time, batch in found:
            assert len(batch) <= size
            assert any(time == pytest.approx(one, abs=0.01) for one in (came[batch[-1]], came[batch[0]] + 2))


@pytest.mark.parametrize("size", [1, 3, 7])
def test_it_goes_on_anywhere(size: int) -> None:
    check_resumes(lambda: ad.Dataset.range(40).shuffle(5, seed=1).batch(size, within=1e6))
    check_resumes(lambda: ad.Dataset.range(40).batch(size, within=1e6).shuffle(5, seed=1).unbatch())
    check_resumes(lambda: ad.Dataset.range(40).batch(size, within=1e-6).unbatch(), ordered=False)


def test_it_goes_on_behind_a_batch_that_was_not_full() -> None:
    pauses = (0, 5, 0, 0, 5, 5, 0, 0, 0, 0)

    async def read(state: Any, count: int, **how: Any) -> tuple[list[int], Any]:
        ds = ad.Dataset.from_async_iterable(Arrivals(*pauses)).batch(3, **how).with_options(HERE)
        async with ds.iterate(state=state) as batches:
            found = [x for _ in range(count) for x in (await anext(batches)).tolist()]
            return found, json.loads(json.dumps(batches.state_dict()))

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        for count in range(1, 5):
            first, state = runner.run(read(None, count, within=2))
            assert first == list(range(len(first)))
            rest, _ = runner.run(read(state, 1, within=9))
            assert rest[0] == len(first)
            rest, _ = runner.run(read(state, 1))  # without a time
            assert rest == list(range(len(first), min(len(first) + 3, 10)))


def test_failures_pass_at_once() -> None:
    def fail(x: int) -> int:
        if x % 4 == 1:
            raise Boom(x)
        return x

    ds = ad.Dataset.range(8).map(fail)
    assert repr(results(ds.batch(3, within=1e6))) == repr(results(ds.batch(3)))


def test_leaving_early_and_a_slow_source_leave_nothing() -> None:
    async def body() -> None:
        ds = ad.Dataset.from_async_iterable(Arrivals(0, 1e6)).batch(2, within=1).with_options(HERE)
        async with ds.iterate() as batches:
            assert (await anext(batches)).tolist() == [0]
        assert len(asyncio.all_tasks()) == 1

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        runner.run(body())


def test_facts_and_wrong_arguments() -> None:
    ds = ad.Dataset.range(10).batch(4, within=1.5)
    assert "batch(4, within=1.5)" in str(ds.plan)
    assert ds.cardinality() == ad.UNKNOWN_CARDINALITY
    assert ad.Dataset.range(10).repeat().batch(4, within=1).cardinality() == ad.INFINITE_CARDINALITY
    assert ds.element_spec == ad.Dataset.range(10).batch(4).element_spec
    for wrong in (0, -1, float("inf"), float("nan"), True, "1"):
        with pytest.raises(ad.PlanError, match="within"):
            ad.Dataset.range(10).batch(4, within=wrong)  # type: ignore[arg-type]
    with pytest.raises(ad.PlanError, match="drop_remainder"):
        ad.Dataset.range(10).batch(4, True, within=1)


def test_shares_of_batches_that_depend_on_time_are_refused(tmp_path: Path) -> None:
    """Each process would have other batches, so that elements were lost and repeated."""
    ds = ad.Dataset.range(10).batch(4, within=1)
    for one in (ds, ds.map(len), ds.cache(tmp_path / "kept"), ds.unbatch()):
        with pytest.raises(ad.PlanError, match=r"put shard\(\) before it"):
            one.shard(2, 0)
        assert len(list(one.shard(1, 0))) == len(list(one))
