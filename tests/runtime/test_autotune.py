"""What AUTOTUNE chooses, for functions of every kind on machines that are only told of."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


class Samples(deque[Sample]):
    """Has another thread look at what there is just before one of them is taken."""

    def __init__(self, look: Callable[[], object]) -> None:
        super().__init__()
        self.others = [threading.Thread(target=look)]

    def popleft(self) -> Sample:
        if other := next(iter(self.others), None):
            self.others.clear()
            other.start()
            other.join(0.1)  # in vain, as they take turns
        return super().popleft()


def test_two_iterators_of_one_dataset_may_look_at_the_same_samples() -> None:
    tuning = Tuning()
    tuning.samples = Samples(tuning.consider)
    tuning.samples.append(Sample(1, 1e-3, 1e-3, 0.0, 0, tuning.choice, 1.0))
    (other,) = tuning.samples.others
    assert tuning.consider() is tuning.choice
    other.join()
    assert not tuning.samples


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


# with noise

KINDS = {
    "cheap": (Function(1e-6), "inline", 1),
    "decoder": (Function(4e-3, speedup=frees_the_lock), "thread", 2),
    "python": (Function(6e-4, speedup=holds_the_lock), "process", 2),
    "sleep": (Function(0.02, 0.01, waits), "thread", 64),
}


def noisy(function: Function, draw: random.Random, amount: float) -> Function:
    """Return a function that is a bit dearer this time, beside other programs, and waits for the lock."""
    crowd, lock = 1 + amount * draw.expovariate(1), amount * draw.random() / 4
    return replace(function, cost=function.cost * (1 + amount * draw.random()), crowd=crowd, lock=lock)


def drive_noisy(tuning: Tuning, clock: Any, function: Function, seconds: float, draw: random.Random) -> list[Choice]:
    """Run a stage for some seconds, each fiftieth of one with other noise; return its choices."""
    end, choices = clock.now + seconds, [tuning.choice]
    while clock.now < end:
        hungry = draw.random() < 0.95
        found = drive(tuning, clock, noisy(function, draw, 0.4), 0.02, hungry)
        choices += [choice for choice in found if choice is not choices[-1]]
    return choices


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_with_noise_it_settles_soon_and_stays(kind: str, seed: int) -> None:
    """Within two seconds; it then may try again, ever more seldom, but comes back."""
    function, where, workers = KINDS[kind]
    with mock.patch.object(autotune, "usable_cores", return_value=2):
        tuning, clock, draw = Tuning(processes=True), SimpleNamespace(now=1.0), random.Random(seed)
        drive_noisy(tuning, clock, function, 2, draw)
        assert tuning.settled, tuning.choice
        assert tuning.choice[:2] == (where, workers)
        choices = drive_noisy(tuning, clock, function, 40, draw)
        assert len(choices) < 30


@pytest.mark.parametrize(
    ("before", "after"),
    [
        *[("cheap", after) for after in ("decoder", "python", "sleep")],
        *[(before, "cheap") for before in ("decoder", "python", "sleep")],
        *[("python", "decoder"), ("python", "sleep"), ("decoder", "sleep"), ("sleep", "decoder")],
    ],
)
def test_a_function_that_becomes_another_kind_is_tried_anew(clock: Any, before: str, after: str) -> None:
    """If calls are seen to take four times as long, or a quarter; also after hours."""
    function, where, workers = KINDS[after]
    tuning = Tuning(processes=True)
    drive(tuning, clock, KINDS[before][0], 5)
    tuning.patience = 10_000.0
    drive(tuning, clock, function, 22)
    assert tuning.choice[:2] == (where, workers)


@pytest.mark.parametrize("factor", [0.1, 10])
@pytest.mark.parametrize("kind", ["decoder", "sleep"])
def test_calls_that_become_dearer_or_cheaper_are_tried_anew(clock: Any, kind: str, factor: float) -> None:
    function, where, workers = KINDS[kind]
    tuning = Tuning(processes=True)
    drive(tuning, clock, function, 5)
    settled = tuning.choice
    drive(tuning, clock, replace(function, cost=function.cost * factor), 20)
    assert tuning.choice[:2] == (where, workers)
    assert tuning.choice.why != settled.why
    assert tuning.settled


def test_a_reader_that_had_enough_for_hours_and_begins_to_wait_is_noticed_soon(clock: Any) -> None:
    tuning = Tuning()
    drive(tuning, clock, Function(4e-3, speedup=frees_the_lock), 5, hungry=False)
    tuning.patience = 10_000.0
    drive(tuning, clock, Function(4e-3, speedup=frees_the_lock), 18)
    assert tuning.choice[:2] == ("thread", 2)


def test_a_function_and_a_reader_that_change_for_ever_are_not_followed_for_ever(clock: Any) -> None:
    """One that neither threads nor processes make faster, for a reader that waits now and again."""
    tuning, changes = Tuning(processes=True), 0
    for _ in range(300):
        changes += len(drive(tuning, clock, Function(4e-3, speedup=alone), 1)) - 1
        changes += len(drive(tuning, clock, Function(4e-3, speedup=alone), 1, hungry=False)) - 1
    assert changes < 40
