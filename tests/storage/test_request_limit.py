"""One limit for all requests to an endpoint: it holds, it grows while that helps, and it falls when it is refused."""

from __future__ import annotations

import asyncio
import threading

import pytest

from asyncdata.storage.request_limit import Limit


async def test_no_more_than_the_limit_at_once() -> None:
    limit, most, running = Limit(3), 0, 0

    async def request() -> None:
        nonlocal most, running
        async with limit.slot():
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*[request() for _ in range(20)])
    assert (most, limit.running, len(limit.waiting)) == (3, 0, 0)


@pytest.mark.parametrize("steps", range(4))
async def test_who_gives_up_takes_no_place(steps: int) -> None:
    limit = Limit(1)

    async def request() -> None:
        async with limit.slot():
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(request()) for _ in range(5)]
    for _ in range(steps):
        await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (limit.running, len(limit.waiting)) == (0, 0)


def test_loops_of_several_threads_share_it() -> None:
    limit = Limit(2)

    async def request() -> None:
        async with limit.slot():
            assert limit.running <= 2
            await asyncio.sleep(0)

    async def many() -> None:
        await asyncio.gather(*[request() for _ in range(50)])

    threads = [threading.Thread(target=asyncio.run, args=(many(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (limit.running, len(limit.waiting)) == (0, 0)


class Line:
    """An endpoint in virtual time: each request has its own speed, up to that of the whole line."""

    def __init__(self, each: float, whole: float) -> None:
        self.now = 0.0
        self.each = each
        self.whole = whole
        self.limit = Limit(16, clock=lambda: self.now)

    def run(self, windows: int) -> int:
        """Keep as many requests under way as may be; return the limit that this leads to."""
        for _ in range(windows):
            count = self.limit.now
            self.limit.running = count
            self.limit.full = True
            self.now += count * (1 << 20) / min(count * self.each, self.whole)
            for _ in range(count):
                self.limit.succeeded(1 << 20)
        return self.limit.now


def test_it_grows_while_bytes_come_faster() -> None:
    assert Line(10e6, 1e12).run(20) == 64
    assert Line(10e6, 160e6).run(3) == 16
    assert 25 <= Line(10e6, 300e6).run(20) <= 58


def test_it_falls_when_most_requests_are_refused_and_not_for_a_few() -> None:
    limit = Limit(16, clock=lambda: 0.0)
    for number in range(160):
        limit.refused() if number % 5 == 0 else limit.succeeded(1)
    assert limit.now == 16
    for _ in range(16):
        limit.refused()
    assert limit.now == 11
    for _ in range(400):
        limit.refused()
    assert limit.now == 1
