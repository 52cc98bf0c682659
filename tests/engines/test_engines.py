"""How a plain consumer waits for a pipeline that runs on a loop of its own, in the same thread."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from asyncdata.engines.base import StopSignal

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_a_wait_that_is_interrupted_as_it_ends_does_not_end_the_next() -> None:
    with closing(asyncio.new_event_loop()) as loop:
        signal = StopSignal(loop)
        seen: list[str] = []

        def interrupt() -> None:
            signal.notify()
            raise KeyboardInterrupt

        def arrive() -> None:
            seen.append("arrived")
            signal.notify()

        loop.call_soon(interrupt)
        with pytest.raises(KeyboardInterrupt):
            signal.until(lambda: seen)
        signal.notify()  # nobody waits
        loop.call_soon(loop.call_soon, loop.call_soon, arrive)
        signal.until(lambda: seen)
        assert seen == ["arrived"]


def test_a_wait_goes_on_while_there_is_nothing_for_it() -> None:
    with closing(asyncio.new_event_loop()) as loop:
        signal = StopSignal(loop)
        seen: list[int] = []

        def arrive() -> None:
            seen.append(len(seen))
            signal.notify()
            loop.call_soon(arrive)

        loop.call_soon(arrive)
        signal.until(lambda: len(seen) >= 3)
        assert seen == [0, 1, 2]  # it is stopped as soon as there is
        signal.until(lambda: True)
        assert seen == [0, 1, 2]
