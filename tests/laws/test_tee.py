"""Several consumers of any pipeline see the same, however they take turns, and keep together."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.testing import leaves_nothing
from tests.laws.pipelines import Pipeline, pipelines
from tests.reference import failed, plain


class Reading(NamedTuple):
    """How a consumer reads: how many turns of the loop it works on each element in a cycle, and when it leaves."""

    turns: list[int]
    most: int


READINGS = st.lists(
    st.builds(Reading, st.lists(st.integers(0, 6), min_size=1, max_size=5), st.sampled_from([10_000, 10_000, 9, 0])),
    min_size=1,
    max_size=4,
)


async def read_together(ds: ad.Dataset[Any], size: int, readings: list[Reading]) -> list[list[Any]]:
    """Read with a task for each consumer; see that none is ever further ahead than the buffer allows."""
    consumers = ds.tee(len(readings), size)
    found: list[list[Any]] = [[] for _ in readings]
    left = set[int]()

    async def read(number: int) -> None:
        mine, (turns, most) = found[number], readings[number]
        async with consumers[number] as elements:
            while len(mine) < most:
                try:
                    mine.append(await anext(elements))
                except StopAsyncIteration:
                    break
                except Exception as error:
                    mine.append(failed(error))
                others = [len(other) for place, other in enumerate(found) if place not in left]
                assert len(mine) - min(others) <= size + 1  # one is being read
                for _ in range(turns[len(mine) % len(turns)]):
                    await asyncio.sleep(0)
            left.add(number)

    await asyncio.gather(*map(read, range(len(readings))))
    return found


@given(
    pipe=pipelines(),
    size=st.integers(1, 9) | st.integers(10, 60),
    readings=READINGS,
    placement=st.sampled_from(["thread", "current"]),
)
def test_all_consumers_see_the_same(pipe: Pipeline, size: int, readings: list[Reading], placement: Any) -> None:
    options = ad.Options(placement=placement)
    with leaves_nothing():  # a dataset that is still there may keep worker processes for its next epoch
        found = asyncio.run(read_together(pipe.build().with_options(options), size, readings))
    longest = max(found, key=len)
    for reading, elements in zip(readings, found, strict=True):
        assert len(elements) == min(reading.most, len(pipe.elements()))
        assert [*map(plain, elements)] == [*map(plain, longest[: len(elements)])]
    if pipe.ordered or len(longest) == len(pipe.elements()):
        assert pipe.comparable(longest) == pipe.elements()[: len(longest)]
