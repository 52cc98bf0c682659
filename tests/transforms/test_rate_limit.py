from __future__ import annotations

import asyncio
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes, check_transform, virtual_time
from tests.reference import Boom, Failed
from tests.running import results


def times(ds: ad.Dataset[Any], pause: tuple[int, float] | None = None) -> list[float]:
    """When each element comes, in seconds, to a consumer that pauses once after so many."""

    async def read() -> list[float]:
        clock, found = asyncio.get_running_loop().time, list[float]()
        async for _ in ds.with_options(ad.Options(placement="current", optimize=False)):
            found.append(round(clock(), 6))
            if pause is not None and len(found) == pause[0]:
                await asyncio.sleep(pause[1])
        return found

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        return runner.run(read())


def test_keeps_its_contract() -> None:
    check_transform(lambda ds: ds.rate_limit(1e6), list)


@pytest.mark.parametrize("rate", [0.5, 3, 7, 1000])
def test_elements_come_evenly(rate: float) -> None:
    assert times(ad.Dataset.range(50).rate_limit(rate)) == pytest.approx([i / rate for i in range(50)], abs=1e-5)


def test_a_burst_comes_at_once_and_then_no_more_than_the_rate() -> None:
    assert times(ad.Dataset.range(7).rate_limit(1, burst=3)) == [0, 0, 0, 1, 2, 3, 4]


def test_after_a_pause_a_burst_may_come_again() -> None:
    assert times(ad.Dataset.range(8).rate_limit(1, burst=3), pause=(3, 2.0)) == [0, 0, 0, 2, 2, 3, 4, 5]
    assert times(ad.Dataset.range(8).rate_limit(1, burst=3), pause=(3, 60.0)) == [0, 0, 0, 60, 60, 60, 61, 62]
    assert times(ad.Dataset.range(4).rate_limit(1), pause=(2, 60.0)) == [0, 1, 61, 62]


def test_requests_behind_it_are_as_many() -> None:
    begun: list[float] = []

    async def request(x: int) -> int:
        begun.append(asyncio.get_running_loop().time())
        await asyncio.sleep(100)
        return x

    times(ad.Dataset.range(5).rate_limit(2).map(request, num_parallel_calls=50))
    assert begun == pytest.approx([0, 0.5, 1, 1.5, 2])


def test_a_consumer_that_reads_ahead_is_held_back_too() -> None:
    assert times(ad.Dataset.range(4).rate_limit(1).prefetch(10)) == [0, 1, 2, 3]


def test_failed_elements_count() -> None:
    def fail(x: int) -> int:
        raise Boom(x)

    assert results(ad.Dataset.range(2).map(fail).rate_limit(1000)) == [Failed("Boom(0)"), Failed("Boom(1)")]


def test_nothing_is_asked_for_before_its_time() -> None:
    pulled: list[int] = []
    ds = ad.Dataset.range(100).map(lambda x: pulled.append(x) or x).rate_limit(1)
    times(ds.take(3))
    assert len(pulled) == 3


def test_it_may_change_when_a_run_goes_on() -> None:
    check_resumes(lambda: ad.Dataset.range(12).rate_limit(1e6, burst=4).shuffle(3, seed=1))
    with ad.Dataset.range(5).rate_limit(1e6).batch(2).iterate() as batches:
        next(batches)
        state = batches.state_dict()
    assert next(ad.Dataset.range(5).batch(2).iterate(state=state)).tolist() == [2, 3]


def test_facts_pass_through() -> None:
    ds = ad.Dataset.range(9).rate_limit(1e6)
    assert (len(ds), ds[4]) == (9, 4)


@pytest.mark.parametrize("wrong", [{"per_second": 0}, {"per_second": -1}, {"per_second": "1"}, {"burst": 0}])
def test_what_is_no_rate_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ad.PlanError, match=next(iter(wrong))):
        ad.Dataset.range(1).rate_limit(**{"per_second": 1, **wrong})
