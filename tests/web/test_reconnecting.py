"""How long a stream whose connection broke is tried again, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from asyncdata.testing import virtual_time
from asyncdata.web.reconnecting import Reconnecting


def run(body: Callable[[Reconnecting], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=virtual_time) as runner:
        runner.run(body(Reconnecting("stream", 300)))


async def attempts(again: Reconnecting) -> float:
    """Return the seconds until it gives up."""
    now = asyncio.get_running_loop().time
    begun, number = now(), 0
    with pytest.raises(ConnectionError, match="broke"):
        while number < 100:
            await again.wait(ConnectionError("broke"))
            number += 1
    assert number == again.attempts
    return now() - begun


def test_it_is_tried_for_the_given_time_after_the_connection_broke_however_long_nothing_had_come() -> None:
    async def body(again: Reconnecting) -> None:
        for pause in (0, 3600):
            again.received()
            await asyncio.sleep(pause)  # a reader that does something else, or a silent stream
            assert 270 <= await attempts(again) <= 300
            assert again.attempts > 10

    run(body)


def test_an_item_begins_the_time_anew() -> None:
    async def body(again: Reconnecting) -> None:
        again.received()
        for _ in range(5):
            await again.wait(ConnectionError("broke"))
            await asyncio.sleep(290)
            again.received()
        assert 270 <= await attempts(again) <= 300

    run(body)


@pytest.mark.parametrize("first", [0, 1e-9, 1.0, 5.0, 1e9])
def test_signs_of_life_change_nothing(first: float) -> None:
    async def body(again: Reconnecting) -> None:
        again.received()
        again.first = first
        now = asyncio.get_running_loop().time
        with pytest.raises(ConnectionError):
            for number in range(100):
                begun = now()
                again.heard()
                await again.wait(ConnectionError("broke"))
                assert max(0.5, min(15, first * 2**number / 2)) <= now() - begun <= 30
        assert 270 <= now() <= 300
        assert again.attempts < 40

    run(body)


def test_items_do_not_make_it_ask_more_than_twice_a_second() -> None:
    async def body(again: Reconnecting) -> None:
        again.first = 0
        for _ in range(100):
            again.received()
            await again.wait(ConnectionError("broke"))
        assert asyncio.get_running_loop().time() >= 50

    run(body)


def test_a_stream_that_never_sent_anything_is_not_tried_again() -> None:
    async def body(again: Reconnecting) -> None:
        assert await attempts(again) == 0

    run(body)
