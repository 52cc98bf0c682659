"""A reader of a channel is woken for each send, or, when sends come in quick succession, for many at once."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

import asyncdata as ad
from asyncdata.testing import virtual_time
from asyncdata.web import pace
from asyncdata.web.pace import AGAIN, STREAK, ChannelReader

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine, sends come in quick succession."""
    monkeypatch.setattr(pace, "QUICK", 60.0)
    monkeypatch.setattr(pace, "HALF_PAUSE", 60.0)


async def pausing() -> ChannelReader:
    reader = ChannelReader(asyncio.get_running_loop())
    for _ in range(STREAK + 1):
        assert not reader.pauses
        reader.took(everything=True)
    assert reader.pauses
    return reader


def waiting(reader: ChannelReader, there: list[int], want: int) -> asyncio.Future[None]:
    return asyncio.ensure_future(reader.until(lambda enough: len(there) >= enough, want))


@pytest.mark.usefixtures("eager")
async def test_it_waits_for_as_many_as_it_wants_or_until_a_sender_finds_no_space() -> None:
    reader, there = await pausing(), list[int]()
    one = waiting(reader, there, 3)
    for number in range(3):
        await asyncio.sleep(0)
        assert not one.done()
        there.append(number)
        reader.sent(len(there))
    await one
    other = waiting(reader, there, 9)
    await asyncio.sleep(0)
    assert not other.done()
    reader.hurry()
    await other


@pytest.mark.usefixtures("eager")
async def test_it_pauses_again_only_where_more_comes_in_the_second_half_of_a_pause() -> None:
    reader, there = await pausing(), [1]
    for more in (True, False):
        one = waiting(reader, there, 9)
        await asyncio.sleep(0)
        reader.sent(1)
        reader.halfway()
        if more:
            reader.sent(1)
        reader.end()
        await one
        assert reader.pauses == more
        reader.took(everything=True)
    for _ in range(AGAIN + STREAK - 2):
        reader.took(everything=True)
        assert not reader.pauses
    reader.took(everything=True)
    assert reader.pauses


def test_a_loop_that_jumps_is_never_kept_waiting() -> None:
    with asyncio.Runner(loop_factory=virtual_time) as runner:
        reader = ChannelReader(runner.get_loop())
    for _ in range(100):
        reader.took(everything=True)
    assert not reader.pauses


@pytest.mark.usefixtures("eager")
def test_nobody_waits_for_a_pause_to_end_that_a_full_or_closed_channel_ends() -> None:
    channel = ad.Channel(max_items=3)

    async def send() -> None:
        async with channel:
            for number in range(500):
                await channel.send([number])

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(asyncio.run, send())
        found = [number for batch in ad.Dataset.from_channel(channel).batch(100) for number in batch]
        sending.result()
    assert found == [*range(500)]
