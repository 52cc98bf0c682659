"""`max_lag`: work is admitted so that what it makes is read in time, however long it takes; nothing is thrown away."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.web.lag import Admission, LagLimit

pytestmark = pytest.mark.usefixtures("nothing_left")

Run = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]


@pytest.mark.parametrize("most", [0, 1, 5])
def test_no_more_than_so_many_are_read_between_an_admission_and_its_send(most: int) -> None:
    rng = random.Random(most)
    limit, read = LagLimit(most), 0
    working: list[Admission] = []
    sent: list[Admission | None] = []
    since: dict[Admission, int] = {}
    widest = 0
    for _ in range(3000):
        what = rng.choice(["admit", "admit", "send", "read", "read", "release", "other"])
        if what == "admit" and limit.try_admit(admission := Admission(0, limit.release)):
            working.append(admission)
            since[admission] = read
        elif what == "send" and working:
            sent.append(limit.sent(working.pop(rng.randrange(len(working)))))
        elif what == "release" and working and rng.random() < 0.1:
            working.pop().release()
        elif what == "other" and not limit.open:  # one that was not admitted may come at any time
            sent.append(limit.sent(None))
        elif what == "read" and sent:
            admission_of = sent.pop(0)
            if admission_of is not None:
                widest = max(widest, read - since[admission_of])
            limit.count_read(admission_of)
            read += 1
        assert limit.pending == len(working) + len(sent)
    assert widest == most
    assert read > 100


def test_a_slow_producer_holds_up_fast_ones_until_its_item_is_there(run: Run) -> None:
    async def body() -> None:
        channel = ad.Channel(max_lag=2)
        async with ad.Dataset.from_channel(channel).iterate() as items:
            slow = await channel.admit(1)
            for number in range(2):
                async with channel.admit(2) as admission:
                    await channel.send([number], admission=admission)
                assert await anext(items) == number
            waiting = asyncio.ensure_future(channel.admit(3).__aenter__())
            behind = asyncio.ensure_future(channel.admit(3).__aenter__())
            left = asyncio.ensure_future(channel.admit(3).__aenter__())
            await asyncio.sleep(0)
            left.cancel()
            assert not waiting.done()
            assert channel.stats()["working"] == 1
            await channel.send(["slow"], admission=slow)
            assert await anext(items) == "slow"
            first = await waiting
            with pytest.raises(ad.PlanError, match="was used"):
                await channel.send(["again"], admission=slow)
            first.release()
            (await behind).release()
        stats = channel.stats()
        assert (stats["staleness"], stats["max_staleness"], stats["waste"]) == (2 / 3, 2, 0)

    run(body)


def test_work_that_fails_holds_up_nobody(run: Run) -> None:
    async def body() -> None:
        channel = ad.Channel(max_lag=0)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                async with channel.admit(1):
                    raise ZeroDivisionError
        held = await channel.admit(1)
        waiting = asyncio.ensure_future(channel.admit(1).__aenter__())
        await asyncio.sleep(0)
        channel.close()
        with pytest.raises(ad.ClosedError):
            await waiting
        held.release()
        assert channel.stats()["working"] == 0

    run(body)


def test_what_cannot_be_admitted_says_so(run: Run) -> None:
    async def body() -> None:
        with pytest.raises(ad.PlanError, match="max_lag="):
            ad.Channel().admit(1)
        with pytest.raises(ad.PlanError, match="version"):
            ad.Channel(max_lag=1).admit("new")  # type: ignore[arg-type]
        with pytest.raises(ad.PlanError, match="max_lag"):
            ad.Channel(max_lag=-1)
        channel, other = ad.Channel(max_lag=1), ad.Channel(max_lag=1)
        async with other.admit(1) as admission:
            for how in ({"admission": admission}, {"admission": admission, "version": 2}, {"admission": 1}):
                with pytest.raises(ad.PlanError, match="admission="):
                    await channel.send([1], **how)

    run(body)


def test_a_durable_channel_waits_for_readers_by_its_folder(run: Run, tmp_path: Path) -> None:
    async def body() -> None:
        async with ad.DurableChannel(tmp_path) as channel:
            await channel.send(b"before")  # counts as one that may be read first, though its writer has ended
        async with ad.DurableChannel(tmp_path, max_lag=2) as channel:
            first, second = await channel.admit(5), await channel.admit(6)
            waiting = asyncio.ensure_future(channel.admit(7).__aenter__())
            assert await channel.send(b"first", "a", admission=first)
            assert await channel.send(b"second", admission=second)
            assert not waiting.done()
            async with ad.Dataset.from_channel(tmp_path).iterate() as items:  # it knows the folder alone
                assert [await anext(items) for _ in range(3)] == [b"before", b"first", b"second"]
                third = await waiting
                assert not await channel.send(b"first", "a", version=5)
                await channel.send(b"third", admission=third)
                assert await anext(items) == b"third"
            stats = channel.stats()
            assert stats["read"] == 4
            assert (stats["staleness"], stats["max_staleness"], stats["working"]) == (1, 2, 0)
            assert [*(tmp_path / "admitting").iterdir()] == []
            await channel.admit(8)
            lone = asyncio.ensure_future(asyncio.wait_for(channel.admit(8).__aenter__(), 60))
            await lone

    run(body)


def test_a_durable_channel_that_is_closed_admits_nobody(run: Run, tmp_path: Path) -> None:
    async def body() -> None:
        channel = ad.DurableChannel(tmp_path, max_lag=0)
        held = await channel.admit(1)
        waiting = asyncio.ensure_future(channel.admit(1).__aenter__())
        await asyncio.sleep(0)
        await channel.aclose()
        with pytest.raises(ad.ClosedError):
            await waiting
        held.release()

    run(body)
