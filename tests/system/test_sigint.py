"""Ctrl-C while a private loop runs, or a plan is driven by hand: at any function call, and in a user's function."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import AsyncGeneratorType, FrameType
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.engines.base import StopSignal
from asyncdata.testing import leaves_nothing
from tests.marks import first_by_default
from tests.reference import Boom, failed

TRIES = 60
CURRENT = ad.Options(placement="current")


@pytest.fixture(autouse=True)
def pythons_own_handler() -> Iterator[None]:
    """Have what a program in the foreground has."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def a_silent_collector() -> Iterator[None]:
    """Have nobody called by the garbage collector, as Hypothesis is: Python loses what is raised there."""
    callbacks = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = callbacks


CALLBACKS = {"_weakrefset", "weakref"}
"""Modules whose functions are called when an object goes away: Python loses what is raised there, too."""


class CtrlC:
    """Presses Ctrl-C at one of the calls in this thread while an element is asked for, and counts them.

    Python looks for it where a function begins and where a call of one in C has come back: what that returned is lost.
    """

    def __init__(self) -> None:
        self.at = self.calls = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if frame.f_globals is globals() or frame.f_globals.get("__name__") in CALLBACKS:
            return
        if event in {"call", "c_return"}:
            self.calls += 1
            if self.calls == self.at and in_a_finalizer(frame):  # Python loses what is raised there
                self.at += 1
            elif self.calls == self.at:
                signal.getsignal(signal.SIGINT)(signal.SIGINT, frame)  # else this function would be the user's

    def read(self, ds: ad.Dataset, at: int) -> tuple[list[Any], int]:
        """Read on after each Ctrl-C; return the elements, and how many there were."""
        with ds.iterate() as elements:
            return self.read_on(elements, at)

    def read_on(self, elements: Iterator[Any], at: int) -> tuple[list[Any], int]:
        """Do so with an iterator."""
        self.at, self.calls = at, 0
        found: list[Any] = []
        interrupts = 0
        while interrupts < 2:
            sys.setprofile(self)
            try:
                element = next(elements)
            except KeyboardInterrupt:
                interrupts += 1
                continue
            except StopIteration:
                break
            except Boom as error:
                element = error
            finally:
                sys.setprofile(None)
            found.append(failed(element) if isinstance(element, Boom) else element)
        return found, interrupts


def in_a_finalizer(frame: FrameType | None) -> bool:
    """Tell whether code is called by the finalizer of an object: its own, or one that `weakref` calls."""
    while frame is not None and frame.f_code.co_name != "__del__" and frame.f_globals.get("__name__") not in CALLBACKS:
        frame = frame.f_back
    return frame is not None


PIPELINES: dict[str, Callable[[], ad.Dataset]] = {
    "threads": lambda: ad.Dataset.range(20).map(abs, num_parallel_calls=2).batch(3).unbatch(),
    "interleave": lambda: ad.Dataset.range(9).interleave(ad.Dataset.range, num_parallel_calls=2),
    "generator": lambda: (
        ad.Dataset.from_generator(lambda: iter(range(20))).shuffle(3, 1, reshuffle_each_iteration=False).prefetch(2)
    ),
}


@pytest.mark.parametrize("placement", first_by_default(["thread", "current"]))
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_it_interrupts_the_waiting_and_nothing_else(pipeline: str, placement: ad.Placement) -> None:
    ds = PIPELINES[pipeline]().with_options(ad.Options(placement=placement))
    expected = list(ds)
    press = CtrlC()
    assert press.read(ds, 0) == (expected, 0)
    calls, came = press.calls, 0
    for at in range(1, calls, -(-calls // TRIES)):
        with leaves_nothing():
            found, interrupts = press.read(ds, at)
        assert (found, interrupts) in [(expected, 0), (expected, 1)], at
        came += interrupts
    assert came >= TRIES // 4, "the others would have come later: each run makes other calls"


def but_seven(number: int) -> int:
    if number == 7:
        raise Boom(number)
    return number


@pytest.mark.parametrize("placement", first_by_default(["thread", "current"]))
def test_an_element_that_failed_is_not_lost(placement: ad.Placement) -> None:
    ds = ad.Dataset.range(10).map(but_seven).with_options(ad.Options(placement=placement))
    expected, press, came = [*range(7), failed(Boom(7)), 8, 9], CtrlC(), 0
    for _ in range(2):  # the first run imports modules: so many calls are in no later one
        assert press.read(ds, 0) == (expected, 0)
    for at in range(1, press.calls, -(-press.calls // (4 * TRIES))):
        found, interrupts = press.read(ds, at)
        assert (found, interrupts) in [(expected, 0), (expected, 1)], at
        came += interrupts
    assert came >= TRIES


def test_an_element_that_failed_is_still_to_come_where_it_was_not_raised() -> None:
    """As a state, a look, a skip and the end of an iterator tell that was interrupted just before."""
    ds = ad.Dataset.range(10).map(but_seven).with_options(ad.Options(placement="current"))

    def before(at: int) -> ad.DatasetIterator[int]:
        elements, press = ds.iterate(), CtrlC()
        press.at = at
        for _ in range(7):
            next(elements)
        sys.setprofile(press)
        try:
            next(elements)
        except KeyboardInterrupt:
            return elements
        except Boom:
            pass
        finally:
            sys.setprofile(None)
        elements.close()
        raise LookupError

    tried = 0
    for at in range(1, 100):
        try:
            looking, skipping, closing = before(at), before(at), before(at)
        except LookupError:
            continue
        tried += 1
        for _ in range(2):
            with pytest.raises(Boom):
                looking.peek()
        state = looking.state_dict()
        with pytest.raises(Boom):
            next(looking)
        assert [*looking] == [8, 9]
        skipping.skip(1)
        assert [*skipping] == [8, 9]
        closing.close()
        for one in (state, closing.state_dict()):
            with ds.iterate(state=one) as rest:
                with pytest.raises(Boom):
                    next(rest)
                assert [*rest] == [8, 9]
    assert tried


@pytest.mark.parametrize("size", first_by_default([100, 1]))
def test_one_of_several_consumers_is_interrupted_and_all_of_them_get_everything(size: int) -> None:
    ds = ad.Dataset.range(20).map(but_seven)
    expected = [*range(7), failed(Boom(7)), *range(8, 20)]
    press = CtrlC()

    def read(at: int) -> tuple[tuple[list[Any], int], list[Any]]:
        others: list[Any] = []
        one, other = ds.tee(2, size)
        thread = threading.Thread(target=lambda: others.extend(CtrlC().read_on(other, 0)[0]))
        thread.start()
        mine = press.read_on(one, at)
        thread.join()
        return mine, others

    assert read(0) == ((expected, 0), expected)
    calls, came = press.calls, 0
    for at in range(1, calls, -(-calls // (4 * TRIES))):
        with leaves_nothing():
            (found, interrupts), others = read(at)
        assert (found, interrupts) in [(expected, 0), (expected, 1)], at
        assert others == expected, at
        came += interrupts
    assert came >= TRIES


def test_a_users_function_is_interrupted_at_once() -> None:
    presses = [3]

    def press(number: int) -> int:
        if number in presses:
            presses.clear()
            signal.raise_signal(signal.SIGINT)
            threading.Event().wait(60)
            raise AssertionError("it was not interrupted")
        return number

    ds = ad.Dataset.range(10).map(press).with_options(CURRENT)
    found: list[int] = []
    with leaves_nothing(), ds.iterate() as elements:
        for _ in range(2):  # which ended the pipeline
            with pytest.raises(KeyboardInterrupt):
                found.extend(elements)
        state = elements.state_dict()
    assert len(found) <= 3
    assert [*found, *ds.iterate(state=state)] == list(range(10))


def test_the_second_one_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(signals: StopSignal, ready: object) -> None:
        handler = signal.getsignal(signal.SIGINT)
        handler(signal.SIGINT, None)
        handler(signal.SIGINT, None)
        raise AssertionError("it was kept")

    ds = ad.Dataset.range(3).map(abs, 1).with_options(CURRENT)
    with ds.iterate() as elements:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(StopSignal, "until", twice)
            next(elements)
        assert list(elements) == [0, 1, 2]


def test_a_handler_of_the_users_stays() -> None:
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))

    def press(number: int) -> int:
        signal.raise_signal(signal.SIGINT)
        return number

    assert list(ad.Dataset.range(3).map(press).with_options(CURRENT)) == [0, 1, 2]
    assert came == [signal.SIGINT] * 3


def test_a_handler_that_a_users_function_sets_stays() -> None:
    def ignore(number: int) -> int:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return number

    assert list(ad.Dataset.range(3).map(ignore).with_options(CURRENT)) == [0, 1, 2]
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def open_generators() -> list[Any]:
    """Async generators that have begun and not ended."""
    return [
        one
        for one in gc.get_objects()
        if isinstance(one, AsyncGeneratorType) and one.ag_frame is not None and one.ag_frame.f_lasti > 2
    ]


def test_a_users_function_that_is_called_by_hand_is_interrupted_at_once() -> None:
    calls: list[int] = []

    def press(x: int) -> int:
        calls.append(x)
        if x == 2:
            signal.raise_signal(signal.SIGINT)
        return x

    ds = ad.Dataset.range(20).repeat(2).map(press).batch(2)
    with leaves_nothing(), pytest.raises(KeyboardInterrupt):
        ds.head(4)
    assert calls == [0, 1, 2]
    assert not open_generators()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert ds.head(1)[0].tolist() == [0, 1]


@pytest.mark.slow
def test_what_is_read_by_hand_is_closed_and_what_is_cached_is_whole_wherever_it_comes() -> None:
    press, numbers = CtrlC(), ad.Dataset.range(20)
    source = ad.Dataset.zip(numbers, numbers.skip(9).repeat(2)).shuffle(4, seed=1)
    expected = list(source)
    for at in range(1, 10_000, 7):
        ds = source.cache()
        press.at, press.calls = at, 0
        sys.setprofile(press)
        try:
            ds.head(6)
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        assert not open_generators()
        assert ds.head(8) == expected[:8]
        assert list(ds) == expected
        if press.calls < at:
            break
    else:
        raise AssertionError("it never came to an end")
    assert at > 100
