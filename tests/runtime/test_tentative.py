"""Pure functions go to threads where that is quicker, and stay in place where it is not."""

from __future__ import annotations

import threading
from unittest import mock

import pytest

import asyncdata as ad
from asyncdata.runtime import tentative
from asyncdata.runtime.block import Block
from asyncdata.runtime.tickets import Ordinals

GROUP = Block([1, 2], Ordinals(0, 2))


def trial(at_once: float) -> tentative.Trial:
    """Return a trial whose threads take so long."""

    class Timed(tentative.Trial):
        async def at_once(self, group: Block) -> float:
            return at_once

    return Timed(None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "busy", "at_once", "passed"),
    [
        (1.0, 1.0, 1.0, True),  # two threads side by side
        (1.0, 1.0, 2.0, False),  # one after the other: it holds the lock of the interpreter
        (1.0, 0.1, 9.0, True),  # it waits
        (5e-5, 1e-6, 0.0, False),  # cheap
    ],
)
def test_functions_that_are_slow_and_let_others_run_pass(
    seconds: float, busy: float, at_once: float, passed: bool
) -> None:
    async def verdict() -> bool:
        one = trial(at_once)
        for _ in range(100):
            if await one.passed(GROUP, seconds, busy):
                return True
        return False

    coroutine = verdict()
    with pytest.raises(StopIteration) as ended:
        coroutine.send(None)
    assert ended.value.value is passed


def test_it_is_tried_a_few_times_only() -> None:
    tried: list[int] = []

    async def at_once(self: tentative.Trial, group: Block) -> float:
        tried.append(len(group))
        return 9.0

    with (
        mock.patch.object(tentative.Trial, "at_once", at_once),
        mock.patch.object(tentative, "BETWEEN", 0.0),
        mock.patch.object(tentative, "CHEAP", 0.0),
    ):
        assert list(ad.Dataset.range(2000).filter(lambda x: sum(range(500)) > 0, pure=True)) == list(range(2000))
    assert len(tried) <= tentative.TRIALS


def test_what_passes_is_called_in_threads_from_then_on() -> None:
    async def passed(*_: object) -> bool:
        return True

    with mock.patch.object(tentative.Trial, "passed", passed):
        first, *others = ad.Dataset.range(64).map(lambda _: threading.current_thread().name, pure=True)
        assert not first.startswith("asyncdata-map")
        assert all(name.startswith("asyncdata-map") for name in others)
