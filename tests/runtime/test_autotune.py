"""What AUTOTUNE chooses, for functions of every kind on machines that are only told of."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.runtime import autotune
from asyncdata.runtime.autotune import Choice, Sample, Tuning


@dataclass
class Function:
    """A function on a machine: what a call costs, how much of it is computing, and how it gets on side by side."""

    cost: float
    computing: float = 1.0
    speedup: Callable[[Choice], float] = lambda choice: 1.0
    """How many times as many calls are done as in one thread."""
    crowd: float = 1.0
    """How many times as long it all takes because of other programs."""
    lock: float = 0.0
    """How long a call waits for the interpreter lock, as a multiple of what it computes."""


def alone(_: Choice) -> float:
    return 1.0


def waits(choice: Choice) -> float:
    return float(choice.workers)


def up_to(most: int) -> Callable[[Choice], float]:
    return lambda choice: float(min(choice.workers, most))


def frees_the_lock(choice: Choice) -> float:
    return min(2.0, choice.workers) * 0.95


def holds_the_lock(choice: Choice) -> float:
    return 1.9 if choice.where == "process" else 0.9 if choice.workers > 1 else 1.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=1.0)
    monkeypatch.setattr(autotune, "usable_cores", lambda: 2)
    return clock


def add_group(tuning: Tuning, function: Function, choice: Choice, now: float) -> float:
    """Have one group done, and return how long it is until the next one is."""
    group = max(1, int(5e-4 / function.cost))
    speedup = function.speedup(choice)
    seconds = group * function.cost / speedup * function.crowd
    took = group * function.cost * (max(1.0, choice.workers / speedup) + function.lock)
    queued = (function.crowd - 1) * group * function.cost * function.computing
    cpu = group * function.cost * function.computing
    pauses = 0 if function.computing == 1.0 and not function.lock else group
    tuning.samples.append(Sample(group, took + queued, cpu, queued, pauses, choice, now + seconds))
    return seconds


def drive(tuning: Tuning, clock: Any, function: Function, seconds: float, hungry: bool = True) -> list[Choice]:
    """Run a stage for some seconds, and return its choices one after the other."""
    end, choices = clock.now + seconds, [tuning.choice]
    while clock.now < end:
        choice = tuning.consider()
        if choice is not choices[-1]:
            choices.append(choice)
        clock.now += add_group(tuning, function, choice, clock.now)
        tuning.read(hungry)
    return choices


def test_cheap_functions_stay_on_the_engines_thread(clock: Any) -> None:
    tuning = Tuning(processes=True)
    drive(tuning, clock, Function(1e-6), 5)
    assert tuning.choice[:2] == ("inline", 1)


@pytest.mark.parametrize("crowd", [1.5, 2, 4])
def test_what_else_the_machine_does_is_not_counted(clock: Any, crowd: float) -> None:
    """A busy machine takes cores away: calls take longer, are less than twice as many in two threads, and compute."""
    decoder, python = Tuning(processes=True), Tuning(processes=True)
    choices = drive(decoder, clock, Function(4e-3, speedup=frees_the_lock, crowd=crowd), 4)
    assert decoder.choice[:2] == ("thread", 2)
    assert {choice.workers for choice in choices} == {1, 2}
    drive(python, clock, Function(6e-4, speedup=holds_the_lock, crowd=crowd), 4)
    assert python.choice[:2] == ("process", 2)


def test_calls_that_waited_for_the_lock_alone_are_seen_to_compute(clock: Any) -> None:
    """While the consumer runs Python code, calls wait to have the interpreter lock: that looks like waiting."""
    tuning = Tuning(processes=True)
    choices = drive(tuning, clock, Function(6e-4, speedup=holds_the_lock, lock=1.0), 2)
    assert choices[1][:2] == ("thread", 8)
    assert tuning.choice[:2] == ("process", 2)
    assert "and computes" in tuning.choice.why


def test_there_are_no_more_threads_when_all_cores_compute(clock: Any) -> None:
    tuning = Tuning(processes=True)
    drive(tuning, clock, Function(1e-3, speedup=frees_the_lock, lock=1.0), 60)
    assert tuning.choice[:2] == ("thread", 8)
    assert tuning.choice.why.endswith("all cores compute so")


def test_calls_that_wait_after_the_first_few_get_many_threads(clock: Any) -> None:
    """What they read was in the cache at first."""
    tuning = Tuning()
    while tuning.alone:
        clock.now += add_group(tuning, Function(1e-3), tuning.choice, clock.now)
        tuning.consider()
    drive(tuning, clock, Function(2e-3, 0.01, waits), 2)
    assert tuning.choice[:2] == ("thread", 64)


def test_python_code_gets_threads_where_they_do_not_take_turns(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an interpreter lock processes are not tried, whether threads help or not."""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    for speedup, workers in ((frees_the_lock, 2), (alone, 1)):
        tuning = Tuning(processes=True)
        choices = drive(tuning, clock, Function(6e-4, speedup=speedup), 60)
        assert tuning.choice[:2] == ("thread", workers)
        assert all(choice.where == "thread" for choice in choices)


@pytest.mark.parametrize("locked", [True, None])
def test_python_code_gets_processes_where_threads_take_turns(
    clock: Any, monkeypatch: pytest.MonkeyPatch, locked: bool | None
) -> None:
    """A free-threaded interpreter may have its lock, too; older ones cannot be asked."""
    if locked is None:
        monkeypatch.delattr(sys, "_is_gil_enabled", raising=False)
    else:
        monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    tuning = Tuning(processes=True)
    drive(tuning, clock, Function(6e-4, speedup=holds_the_lock), 2)
    assert tuning.choice[:2] == ("process", 2)


def test_a_decoder_gets_a_thread_for_each_core(clock: Any) -> None:
    tuning = Tuning(processes=True)
    choices = drive(tuning, clock, Function(4e-3, speedup=frees_the_lock), 2)
    assert tuning.choice[:2] == ("thread", 2)
    assert all(choice.where != "process" for choice in choices)
    assert "times as fast so" in tuning.choice.why


def test_python_code_gets_processes_where_it_may(clock: Any) -> None:
    may, may_not = Tuning(processes=True), Tuning()
    drive(may, clock, Function(6e-4, speedup=holds_the_lock), 2)
    assert may.choice[:2] == ("process", 2)
    drive(may_not, clock, Function(6e-4, speedup=holds_the_lock), 2)
    assert may_not.choice[:2] == ("thread", 1)


def test_functions_that_wait_get_many_threads(clock: Any) -> None:
    tuning = Tuning(processes=True)
    drive(tuning, clock, Function(0.02, 0.01, waits), 2)
    assert tuning.choice[:2] == ("thread", 64)


def test_no_more_threads_than_help(clock: Any) -> None:
    tuning = Tuning()
    drive(tuning, clock, Function(0.02, 0.01, up_to(20)), 3)
    assert tuning.choice[:2] == ("thread", 32), "with 16 it was slower, and 64 are no faster"


def test_coroutines_get_many_tasks(clock: Any) -> None:
    tuning = Tuning(tasks=True)
    drive(tuning, clock, Function(0.02, 0.0, waits), 2)
    assert tuning.choice[:2] == ("task", 64)


def test_nothing_is_widened_for_a_reader_that_does_not_wait(clock: Any) -> None:
    tuning = Tuning(processes=True)
    choices = drive(tuning, clock, Function(4e-3, speedup=frees_the_lock), 5, hungry=False)
    assert {choice.workers for choice in choices} == {1}


def test_a_reader_that_begins_to_wait_is_noticed(clock: Any) -> None:
    tuning = Tuning()
    drive(tuning, clock, Function(4e-3, speedup=frees_the_lock), 5, hungry=False)
    drive(tuning, clock, Function(4e-3, speedup=frees_the_lock), 4)
    assert tuning.choice[:2] == ("thread", 2)


def test_a_function_that_changes_is_tried_anew(clock: Any) -> None:
    tuning = Tuning(processes=True)
    drive(tuning, clock, Function(1e-6), 3)
    drive(tuning, clock, Function(0.02, 0.01, waits), 4)
    assert tuning.choice[:2] == ("thread", 64)


def test_it_does_not_go_to_and_fro_for_ever(clock: Any) -> None:
    """One that neither threads nor processes make faster is tried anew after 1, 2, 4, ... seconds."""
    tuning = Tuning(processes=True)
    choices = drive(tuning, clock, Function(4e-3, speedup=alone), 300)
    assert tuning.choice[:2] == ("thread", 1)
    assert len(choices) < 40


def test_it_settles_within_two_seconds(clock: Any) -> None:
    for function in (
        Function(1e-6),
        Function(6e-4, speedup=holds_the_lock),
        Function(4e-3, speedup=frees_the_lock),
        Function(0.02, 0.01, waits),
    ):
        tuning = Tuning(processes=True)
        drive(tuning, clock, function, 2)
        assert tuning.settled, tuning.choice


# with functions that run


def test_what_was_found_is_told_and_kept_for_the_next_epoch() -> None:
    ds = ad.Dataset.range(20_000).map(lambda x: x + 1, ad.AUTOTUNE)
    for _ in range(2):
        with ds.iterate() as elements:
            assert list(elements) == list(range(1, 20_001))
            (step,) = elements.stats()
        assert (step["where"], step["workers"]) == ("inline", 1)
        assert "a call takes" in step["why"]


def test_calls_that_wait_are_soon_made_side_by_side() -> None:
    most, now, lock = 0, 0, threading.Lock()

    def wait(number: int) -> int:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.002)
        with lock:
            now -= 1
        return number

    assert list(ad.Dataset.range(600).map(wait, ad.AUTOTUNE)) == list(range(600))
    assert most >= 8


def test_results_and_errors_are_the_same_while_it_changes_its_mind() -> None:
    """Inline, then in many threads, then inline again, with failures all the way."""

    def odd(number: int) -> int:
        if 4000 <= number < 4400:
            time.sleep(0.001)
        if number % 997 == 5:
            raise ValueError(number)
        return -number

    def outcome(ds: ad.Dataset) -> list[Any]:
        with ds.iterate() as elements:
            found: list[Any] = []
            while len(found) < 12_000:
                try:
                    found.append(next(elements))
                except ValueError as error:
                    found.append((str(error), error.__notes__))
            return found

    base = ad.Dataset.range(12_000)
    assert outcome(base.map(odd, ad.AUTOTUNE)) == outcome(base.map(odd))


def test_it_can_be_turned_off() -> None:
    ds = ad.Dataset.range(100).map(lambda x: x, ad.AUTOTUNE).with_options(ad.Options(autotune=False))
    with ds.iterate() as elements:
        assert list(elements) == list(range(100))
        assert elements.stats() == []
    with pytest.raises(ad.PlanError, match="autotune"):
        ad.Options(autotune=3)


def test_processes_are_used_only_where_they_were_allowed() -> None:
    lock = threading.Lock()
    assert "AUTOTUNE" in str(ad.Dataset.range(3).map(abs, executor=ad.AUTOTUNE).plan)
    for ds, may in (
        (ad.Dataset.range(3).map(abs, ad.AUTOTUNE), False),
        (ad.Dataset.range(3).map(abs, executor=ad.AUTOTUNE), True),
        (ad.Dataset.range(3).map(lambda x: x if lock else None, executor=ad.AUTOTUNE), False),
    ):
        tuning = ds.plan.executor
        assert isinstance(tuning, Tuning)
        assert tuning.processes is may
        assert list(ds) == [0, 1, 2]
