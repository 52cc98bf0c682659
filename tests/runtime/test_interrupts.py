"""Ctrl-C while a private loop runs: at any of its function calls, and in a user's function."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.runtime.bridge import LoopEngine
from asyncdata.runtime.interrupts import Interrupts
from asyncdata.testing import leaves_nothing

TRIES = 60


@pytest.fixture(autouse=True)
def pythons_own_handler() -> Iterator[None]:
    """Have what a program in the foreground has."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class CtrlC:
    """Presses Ctrl-C at one of the function calls that are made in this thread while the loop runs, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = self.calls = 0
        settle, leave = LoopEngine.settle, Interrupts.__exit__
        monkeypatch.setattr(LoopEngine, "settle", lambda engine: [settle(engine), sys.setprofile(self)])
        monkeypatch.setattr(Interrupts, "__exit__", lambda *of: [sys.setprofile(None), leave(*of)][1])

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_globals is not globals():
            self.calls += 1
            if self.calls == self.at:
                signal.getsignal(signal.SIGINT)(signal.SIGINT, frame)  # else this function would be the user's

    def read(self, ds: ad.Dataset, at: int) -> tuple[list[Any], int]:
        """Read on after each Ctrl-C; return the elements, and how many there were."""
        self.at, self.calls = at, 0
        found: list[Any] = []
        interrupts = 0
        with ds.iterate() as elements:
            while interrupts < 2:
                try:
                    found.append(next(elements))
                except KeyboardInterrupt:
                    interrupts += 1
                except StopIteration:
                    break
        return found, interrupts


PIPELINES: dict[str, Callable[[], ad.Dataset]] = {
    "threads": lambda: ad.Dataset.range(20).map(abs, num_parallel_calls=2).batch(3).unbatch(),
    "interleave": lambda: ad.Dataset.range(9).interleave(ad.Dataset.range, num_parallel_calls=2),
    "generator": lambda: (
        ad.Dataset.from_generator(lambda: iter(range(20))).shuffle(3, 1, reshuffle_each_iteration=False).prefetch(2)
    ),
}


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_it_interrupts_the_waiting_and_nothing_else(pipeline: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ds = PIPELINES[pipeline]().with_options(ad.Options(placement="current"))
    expected = list(ds)
    press = CtrlC(monkeypatch)
    assert press.read(ds, 0) == (expected, 0)
    calls, came = press.calls, 0
    assert calls > 2 * TRIES
    for at in range(1, calls // 2, calls // 2 // TRIES):
        with leaves_nothing():
            found, interrupts = press.read(ds, at)
        assert (found, interrupts) in [(expected, 0), (expected, 1)], at
        came += interrupts
    assert came > TRIES // 2, "the others came while the iterator was closed, or would have"


def test_a_users_function_is_interrupted_at_once() -> None:
    def press(number: int) -> int:
        if number == 3:
            signal.raise_signal(signal.SIGINT)
            threading.Event().wait(30)
            raise AssertionError("it was not interrupted")
        return number

    found: list[int] = []
    with leaves_nothing(), pytest.raises(KeyboardInterrupt):
        found.extend(ad.Dataset.range(10).map(press).with_options(ad.Options(placement="current")))
    assert found == [0, 1, 2]


def test_the_second_one_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(engine: LoopEngine, ready: object) -> bool:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it was kept")

    ds = ad.Dataset.range(3).map(abs, 1).with_options(ad.Options(placement="current"))
    with ds.iterate() as elements:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(LoopEngine, "settle", lambda engine: twice(engine, None))
            next(elements)
        assert list(elements) == [0, 1, 2]


def test_a_handler_of_the_users_stays() -> None:
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))

    def press(number: int) -> int:
        signal.raise_signal(signal.SIGINT)
        return number

    assert list(ad.Dataset.range(3).map(press).with_options(ad.Options(placement="current"))) == [0, 1, 2]
    assert came == [signal.SIGINT] * 3
