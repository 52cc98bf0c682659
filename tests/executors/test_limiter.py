"""Never more tasks than the limit do something at once."""

from __future__ import annotations

import asyncio

import pytest

from asyncdata.executors.limiter import Limiter


async def most_inside(limit: Limiter, tasks: int) -> int:
    inside, most = 0, 0

    async def use(times: int) -> None:
        nonlocal inside, most
        for _ in range(times):
            await limit.enter()
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1
            limit.leave()

    await asyncio.gather(*[use(5 * number + 5) for number in range(tasks)])
    assert limit.inside == 0
    return most


@pytest.mark.parametrize("count", [1, 2, 5])
def test_never_more_are_inside(count: int) -> None:
    assert asyncio.run(most_inside(Limiter(count), 6)) == count


def test_the_limit_may_change() -> None:
    async def body() -> list[int]:
        limit = Limiter(1)
        for _ in range(3):
            turns = [asyncio.ensure_future(limit.enter()) for _ in range(4)]
            await asyncio.sleep(0)
            limit.resize(3)
            await asyncio.sleep(0)
            assert (limit.inside, sum(turn.done() for turn in turns)) == (3, 3)
            limit.resize(1)
            for _ in range(3):
                limit.leave()
            await asyncio.gather(*turns)
            assert limit.inside == 1
            limit.leave()
        return [await most_inside(limit, 3)]

    assert asyncio.run(asyncio.wait_for(body(), 60)) == [1]
