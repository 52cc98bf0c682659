"""What AUTOTUNE chooses, for functions of every kind on machines that are only told of."""

from __future__ import annotations

import os
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

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.executors import autotune
from asyncdata.executors.autotune import Choice, Period, Sample, Tuning, Usage
from asyncdata.executors.process.pool import WorkerPool
from asyncdata.graph import autotuned_workers
from tests.marks import first_by_default


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
    return min(2.0, choice.workers) * (0.87 if choice.where == "process" else 0.95)


def mostly_frees_it(choice: Choice) -> float:
    return 1.95 if choice.where == "process" else 1.69 if choice.workers > 1 else 1.0


def up_to_core_and_a_half(choice: Choice) -> float:
    return min(1.5, choice.workers)


def holds_the_lock(choice: Choice) -> float:
    return 1.9 if choice.where == "process" else 0.9 if choice.workers > 1 else 1.0


@pytest.fixture(autouse=True)
def threads_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """These machines have an interpreter lock unless a test says otherwise, whatever interpreter this is."""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)


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
    usage = Usage(queued, pauses, 0.0)
    tuning.samples.append(Sample(group, took + queued, cpu, choice, now + seconds, usage))
    return seconds


def drive(tuning: Tuning, clock: Any, function: Function, seconds: float, hungry: bool = True) -> list[Choice]:
    """Run a stage for some seconds, and return its choices one after the other."""
    end, choices = clock.now + seconds, [tuning.choice]
    while clock.now < end:
        choice = tuning.consider()
        if choice is not choices[-1]:
            choices.append(choice)
        took = add_group(tuning, function, choice, clock.now)
        clock.now += took
        tuning.read(took if hungry else 0.0)
    return choices


def test_cheap_functions_stay_on_the_engines_thread(clock: Any) -> None:
    tuning = Tuning(processes=True)
    drive(tuning, clock, Function(1e-6), 5)
    assert tuning.choice[:2] == ("inline", 1)


def test_the_history_says_what_each_choice_was_made_after_and_what_was_measured_under_it(clock: Any) -> None:
    tuning = Tuning(processes=True)
    drive(tuning, clock, Function(4e-3, speedup=mostly_frees_it, computing=0.99, crowd=1.5), 5)
    history = tuning.described["history"]
    assert {name: history[-1][name] for name in ("where", "workers", "why")} == tuning.choice._asdict()
    assert [(one["where"], one["workers"]) for one in history[:3]] == [("thread", 1), ("thread", 2), ("process", 2)]
    assert history[0]["after"] == 0 < history[1]["after"] < history[2]["after"]
    assert [round(one["pace"]) for one in history[1:3]] == [
        pytest.approx(1.69 / 4e-3, 0.1),
        pytest.approx(1.95 / 4e-3, 0.1),
    ]
    assert all(one["waited"] > 0.9 and one["own"] < 0.8 for one in history[1:3])


def test_the_history_is_bounded(clock: Any) -> None:
    tuning = Tuning(processes=True)
    for turn in range(60):
        drive(tuning, clock, Function(1e-6 if turn % 2 else 5e-3, speedup=frees_the_lock), 20)
    history = tuning.described["history"]
    assert len(history) == autotune.REMEMBERED + 1
    assert [one["after"] for one in history] == sorted(one["after"] for one in history)


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
    assert "a call takes 1,200 µs, 50% of it computing" in tuning.choice.why


def test_there_are_no_more_threads_when_all_cores_compute(clock: Any) -> None:
    tuning = Tuning(processes=True)
    drive(tuning, clock, Function(1e-3, speedup=frees_the_lock, lock=1.0), 60)
    assert tuning.choice[:2] == ("thread", 8)
    assert max(workers for _, workers in tuning.paces) <= 16


def test_calls_that_wait_after_the_first_few_get_many_threads(clock: Any) -> None:
    """What they read was in the cache at first."""
    tuning = Tuning()
    while tuning.alone:
        clock.now += add_group(tuning, Function(1e-3), tuning.choice, clock.now)
        tuning.consider()
    drive(tuning, clock, Function(2e-3, 0.01, waits), 2)
    assert tuning.choice[:2] == ("thread", 64)


@pytest.mark.parametrize(("function", "calls"), [(Function(0.03, 0.01, waits), 1), (Function(0.03), 2)])
def test_one_call_is_made_alone_if_it_only_waits_and_a_second_if_it_may_have_imported(
    clock: Any, function: Function, calls: int
) -> None:
    tuning, made = Tuning(), 0
    while tuning.alone:
        clock.now += add_group(tuning, function, tuning.choice, clock.now)
        made += 1
        tuning.consider()
    assert made == calls


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
    tuning = Tuning(processes=True)
    drive(tuning, clock, Function(6e-4, speedup=holds_the_lock), 2)
    assert tuning.choice[:2] == ("process", 2)


def test_a_decoder_gets_a_thread_for_each_core(clock: Any) -> None:
    tuning = Tuning(processes=True)
    choices = drive(tuning, clock, Function(4e-3, speedup=frees_the_lock), 2)
    assert tuning.choice[:2] == ("thread", 2)
    assert all(choice.where != "process" for choice in choices)
    assert tuning.choice.why.endswith("elements/s: 250 in 1 thread, 475 in 2 threads")


def test_a_decoder_that_holds_the_lock_now_and_then_gets_processes_where_they_are_faster(clock: Any) -> None:
    """Threads that gain less than a core each are held against processes; if those are no faster, ever more seldom."""
    tuning = Tuning(processes=True)
    drive(tuning, clock, Function(4e-3, speedup=mostly_frees_it), 2)
    assert tuning.choice[:2] == ("process", 2)
    assert tuning.choice.why.endswith("elements/s: 250 in 1 thread, 423 in 2 threads, 487 in 2 processes")
    for tuning, speedup in ((Tuning(), mostly_frees_it), (Tuning(processes=True), up_to_core_and_a_half)):
        choices = drive(tuning, clock, Function(4e-3, speedup=speedup), 300)
        assert tuning.choice[:2] == ("thread", 2)
        assert [choice.where for choice in choices].count("process") in (range(1, 10) if tuning.processes else [0])


def test_the_first_calls_of_processes_do_not_count(clock: Any) -> None:
    """They fault in memory, and fill caches."""
    begun: list[float] = []

    def cold(choice: Choice) -> float:
        if choice.where != "process":
            return mostly_frees_it(choice)
        begun.append(clock.now)
        return 1.2 if clock.now < begun[0] + 0.1 else 1.95

    tuning = Tuning(processes=True)
    drive(tuning, clock, Function(4e-3, speedup=cold), 2)
    assert tuning.choice[:2] == ("process", 2)


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


def test_a_choice_that_was_measured_before_the_reader_had_enough_is_soon_tried_again(clock: Any) -> None:
    """A model was compiled then: calls waited for the interpreter lock, and more threads were no faster."""
    tuning = Tuning()
    drive(tuning, clock, Function(0.02, 0.01, up_to(8)), 2)
    assert tuning.choice[:2] == ("thread", 8)
    tuning.patience = 10_000.0
    drive(tuning, clock, Function(0.02, 0.01, waits), 3, hungry=False)
    assert tuning.choice[:2] == ("thread", 8)
    drive(tuning, clock, Function(0.02, 0.01, waits), 2)
    assert tuning.choice[:2] == ("thread", 64)


def test_more_threads_than_cores_do_not_blame_other_programs_for_what_they_compute(clock: Any) -> None:
    period = Period(1.0)
    for _ in range(64):  # each had a core for a 32nd of the time
        period.add(Sample(1, 0.32, 0.01, Choice("thread", 64, ""), 1.32, Usage(0.31, 1, 0.0)))
    assert period.own == pytest.approx(1.0)


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
    tuning.samples.append(Sample(1, 1e-3, 1e-3, tuning.choice, 1.0))
    (other,) = tuning.samples.others
    assert tuning.consider() is tuning.choice
    other.join()
    assert not tuning.samples


# with functions that run


def test_what_was_found_is_told_and_kept_for_the_next_epoch() -> None:
    """Whatever it is: on a busy machine threads may be measured to be faster."""
    ds = ad.Dataset.range(20_000).map(lambda x: x + 1, ad.AUTOTUNE)
    found: list[tuple[str, int]] = []
    for _ in range(2):
        with ds.iterate() as elements:
            assert next(elements) == 1
            begun, _ = elements.stats().tuned
            assert list(elements) == list(range(2, 20_001))
            step, _ = elements.stats().tuned
        assert not found or (begun["where"], begun["workers"]) == found[-1]
        found.append((step["where"], step["workers"]))
        assert found[-1] in {("inline", 1), ("thread", 1), ("thread", 2)}
        assert step["group"] > 1
        assert "a call takes" in step["why"]


def test_buffers_tell_how_far_they_grew_and_why() -> None:
    """Those of one that is read on, of one that a step reads, and of one that the budget keeps small."""
    pictures = ad.Dataset.range(64).map(lambda n: np.full(1 << 20, n, np.uint8))
    ds = pictures.prefetch(ad.AUTOTUNE).batch(2).prefetch(3).map(lambda batch: batch[:, 0])
    with ds.with_options(ad.Options(ram_budget=4 << 20, optimize=False)).iterate() as elements:
        assert elements.stats().tuned == []
        list(elements)
        (within,) = elements.stats().tuned
    assert (within["step"], within["why"]) == ("prefetch(AUTOTUNE)", "the memory budget is used up")
    assert 1 <= within["buffer"] <= 4
    assert within["bytes"] <= 4 << 20
    with ad.Dataset.range(100_000).iterate() as numbers:
        list(numbers)
        (buffer,) = numbers.stats().tuned
    assert buffer["buffer"] > 2
    assert buffer["why"] in {"fewer were used up before more came", "fewer were too little work"}


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
        assert [step["step"] for step in elements.stats().tuned] == ["prefetch(AUTOTUNE)"]
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


class Decided(Tuning):
    """Chooses one thread for the first group, and processes from then on, until it is told to stay."""

    def consider(self) -> Choice:
        choice = self.choice
        if self.alone:
            self.change(Choice("process", 3, "told so"))
        return choice


def late(monkeypatch: pytest.MonkeyPatch, cores: int, start: Callable[[WorkerPool], None]) -> threading.Event:
    """Have worker processes started only when an event is set, in a pool that nobody else keeps."""
    event = threading.Event()
    monkeypatch.setattr(autotuned_workers, "usable_cores", lambda: cores)
    monkeypatch.setattr(WorkerPool, "open", lambda pool: [event.wait(60), start(pool)])
    return event


def decided() -> ad.Dataset:
    """Return numbers and the processes that were asked for them."""
    ds = ad.Dataset.counter(1).map(lambda n: (n, os.getpid()), executor=ad.AUTOTUNE)
    object.__setattr__(ds.plan, "executor", Decided(processes=True))
    return ds


def test_calls_go_on_where_they_are_made_until_there_are_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    may_start = late(monkeypatch, 3, WorkerPool.open)
    with decided().iterate() as elements:
        found = [next(elements) for _ in range(3000)]
        assert {process for _, process in found} == {os.getpid()}
        may_start.set()
        while found[-1][1] == os.getpid():
            found.append(next(elements))
    assert [number for number, _ in found] == list(range(1, len(found) + 1))


def test_what_calls_compute_in_processes_is_known() -> None:
    """Else calls that compute there, and later wait for as long, would stay there."""

    def compute(number: int) -> tuple[int, int]:
        end = time.thread_time() + 1e-3
        while time.thread_time() < end:
            pass
        return number, os.getpid()

    ds = ad.Dataset.counter(1).map(compute, executor=ad.AUTOTUNE)
    object.__setattr__(ds.plan, "executor", Decided(processes=True))
    samples: list[Sample] = []
    with ds.iterate() as elements:
        while not (samples := [one for one in [*ds.plan.executor.samples] if one.choice.where == "process"]):
            next(elements)
    away = samples[0]
    assert away.cpu >= 1e-3 * away.elements


def test_calls_stay_where_they_are_made_if_something_else_is_chosen_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """By another iterator of the dataset, while this one waits for processes."""
    may_start = late(monkeypatch, 6, WorkerPool.open)
    ds = decided()
    tuning = ds.plan.executor
    with ds.iterate() as elements:
        found = [next(elements) for _ in range(100)]
        pool = tuning.pool
        tuning.settle(("thread", 2), "another one found so")
        may_start.set()
        while not pool.pool.begun:
            found.append(next(elements))
        found += [next(elements) for _ in range(3000)]
        (told, _) = elements.stats().tuned
    assert (told["where"], told["workers"]) == ("thread", 2)
    assert {process for _, process in found} == {os.getpid()}


def test_calls_stay_where_they_are_made_if_there_can_be_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(_: WorkerPool) -> None:
        raise OSError("no more")

    late(monkeypatch, 5, cannot).set()
    with decided().iterate() as elements:
        while "trying" in (told := elements.stats().tuned[0])["why"] or told["where"] == "process":
            assert next(elements)[1] == os.getpid()
        found = [next(elements) for _ in range(3000)]
        assert {process for _, process in found} == {os.getpid()}
    assert (told["where"], told["workers"]) == ("thread", 1)
    assert "cannot be started: OSError('no more')" in told["why"]


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


@pytest.mark.parametrize("kind", first_by_default([*KINDS], 2))
@given(seed=st.integers(0, 2**32))
@settings(max_examples=max(3, settings().max_examples // 27))
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
    first_by_default(
        [
            *[("cheap", "python"), ("decoder", "cheap"), ("python", "sleep"), ("sleep", "decoder")],
            *[("cheap", "decoder"), ("cheap", "sleep"), ("python", "cheap"), ("sleep", "cheap")],
            *[("python", "decoder"), ("decoder", "sleep")],
        ],
        4,
    ),
)
def test_a_function_that_becomes_another_kind_is_tried_anew(clock: Any, before: str, after: str) -> None:
    """If calls are seen to take four times as long, or a quarter; also after hours."""
    function, where, workers = KINDS[after]
    tuning = Tuning(processes=True)
    drive(tuning, clock, KINDS[before][0], 5)
    tuning.patience = 10_000.0
    drive(tuning, clock, function, 22)
    assert tuning.choice[:2] == (where, workers)


@pytest.mark.parametrize("factor", first_by_default([10, 0.1]))
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
    assert changes < 60
