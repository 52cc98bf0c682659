"""AUTOTUNE: where a stage's functions are called, and how many calls at once, found out while it runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from asyncdata.runtime import forks
from asyncdata.runtime.host_resources import lock_is_held, usable_cores

__all__ = ("Choice", "Sample", "Tuning", "Where")

Where: TypeAlias = Literal["inline", "thread", "task", "process"]

CHEAP: Final = 30e-6
"""Seconds below which a call is not worth a thread: to hand it over and wait for the interpreter lock takes longer."""

COMPUTES: Final = 0.7
"""A function that computes for at least this part of its time counts as one that only computes."""

FIRST: Final = 8
MOST: Final = 64
"""How many calls that wait are made at once, to begin with and at most."""

GAIN: Final = 1.2
"""How many times as fast more workers must be to stay: a smaller gain may come from other work on the machine."""

FULL: Final = 0.9
"""The part of a core that each thread must have computed on for processes not to be tried, where they are allowed."""

BETTER: Final = 1.05
COMPARED: Final = 0.4
"""How many times as fast as threads that gain processes must be to stay, by how many seconds of each."""

SINGLE: Final = 3
LOOK: Final = 0.02
"""How many single calls are judged, or how many seconds of them."""

PERIOD: Final = 0.2
WATCH: Final = 1.0
GROUPS: Final = 3
"""Seconds that pass before a choice is judged, and before it is looked at again once it is settled; and groups of each
worker."""

CHANGED: Final = 4.0
"""How many times as slow or as fast calls must become before choices are tried again."""

PATIENCE: Final = 16.0
"""Seconds after which choices are tried again after an evident change, however often that was done before."""

FED: Final = "enough for the reader"


class Choice(NamedTuple):
    """Where calls are made, how many at once, and why."""

    where: Where
    workers: int
    why: str


class Sample(NamedTuple):
    """A finished group: its number of elements, its cost, and the choice it ran under."""

    elements: int
    seconds: float
    """That passed, of which the next two are parts."""
    cpu: float
    """Those that were computed."""
    queued: float
    """Those in which it would have computed, had something else on the machine not had the core."""
    pauses: int
    """How often it gave up its core voluntarily, as only a waiting function does."""
    choice: Choice
    at: float
    """When it was done, in seconds of `time.perf_counter`."""


class Tuning:
    """What is known of a stage's functions; stored for the next epoch.

    One call at a time shows what a call costs and whether it computes or waits. Cheap calls are made on the engine's
    thread. Functions that wait get twice as many threads (or tasks) as long as that is faster. Functions that
    compute get a thread for each core if that is faster; worker processes if they may run there, threads take turns
    for a good part of the time, and processes are faster. Nothing is widened while the reader of the results does not
    wait for them. When the reader still waits, choices are tried again, each time after twice as long, so that they do
    not alternate forever. After a change they are tried sooner: if calls are much slower or faster, or a reader that
    had enough now waits nearly every time.
    """

    def __init__(self, *, processes: bool = False, tasks: bool = False) -> None:
        self.processes = processes
        self.waiting: Where = "task" if tasks else "thread"
        self.samples: deque[Sample] = deque()
        self.lock = forks.lock()  # iterators of one dataset, in several threads, share the measurements of groups
        self.patience = WATCH
        self.group = 1
        """How many elements a worker was handed at a time, last."""
        self.pool: object = None
        """Holds the worker processes for the next epoch, once they are used."""
        self.reset_measurements()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it without measurements: another process makes its own."""
        return partial(Tuning, processes=self.processes, tasks=self.waiting == "task"), ()

    def reset_measurements(self) -> None:
        """Begin with one call at a time; awaiting one is known to wait."""
        self.known = self.rate = self.since = 0.0
        self.looked: list[Sample] = []
        if self.waiting == "task":
            self.about = "it is awaited"
            self.try_choice(Choice("task", FIRST, self.about), self.judge_spread)
        else:
            self.about = ""
            self.try_choice(Choice("thread", 1, "trying one call at a time"), self.look)
        self.before = self.choice

    def try_choice(self, choice: Choice, judge: Callable[[], None]) -> None:
        """Make calls in this way, and judge it when enough have been made."""
        self.choice = choice
        self.judge = judge
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """Start to count again."""
        self.begun = self.now = now
        self.seconds = self.cpu = self.queued = 0.0
        self.count = self.groups = self.pauses = self.waits = self.reads = 0
        self.best = inf

    def read(self, waits: bool) -> None:
        """Take note that the reader asks for results, and whether it has to wait."""
        self.reads += 1
        self.waits += waits

    @property
    def reader_waits(self) -> bool:
        """Whether the reader waits as often as not."""
        return 2 * self.waits >= self.reads

    @property
    def alone(self) -> bool:
        """Whether one call at a time is made, to measure a call."""
        return self.judge == self.look

    @property
    def settled(self) -> bool:
        """Whether no choice is being tried."""
        return self.judge == self.watch

    @property
    def passed(self) -> float:
        """Seconds since it began to count, without the time that other programs took."""
        return (self.now - self.begun) * (1 - self.queued / self.seconds)

    @property
    def gain(self) -> float:
        """How many times as fast it is as it was before."""
        return self.count / self.passed / self.rate if self.rate else inf

    @property
    def cores(self) -> float:
        """How many cores computed all the time."""
        return self.cpu / self.passed

    @property
    def waited(self) -> bool:
        """Whether calls gave up their cores for a good part of their time."""
        return self.cpu + self.queued < COMPUTES * self.seconds and 2 * self.pauses >= self.count

    def consider(self) -> Choice:
        """Evaluate the groups since the last call, and return the choice for the next group."""
        with self.lock:
            while self.samples:
                sample = self.samples.popleft()
                if sample.choice is self.choice:  # samples of an earlier choice say nothing about this one
                    self.learn(sample)
            return self.choice

    def learn(self, sample: Sample) -> None:
        """Learn from one group."""
        if self.alone:
            self.looked.append(sample)
            if len(self.looked) >= SINGLE or sum(sample.seconds for sample in self.looked) >= LOOK:
                self.judge()
        elif not self.begun:  # threads and processes were started for the first one
            self.begin(sample.at)
            self.since = self.since or sample.at
        else:
            self.add(sample)
            enough = WATCH if self.settled else PERIOD
            if self.now - self.begun >= enough and self.groups >= GROUPS * self.choice.workers:
                self.judge()

    def add(self, sample: Sample) -> None:
        """Count a group."""
        self.now = sample.at
        self.count += sample.elements
        self.groups += 1
        self.pauses += sample.pauses
        self.seconds += max(sample.seconds, 1e-9)
        self.cpu += sample.cpu
        queued = min(sample.queued, 0.95 * sample.seconds)
        self.queued += queued
        self.best = min(self.best, (sample.seconds - queued) / sample.elements)

    # one call at a time

    def look(self) -> None:
        """Decide by the cost of single calls. Work that only the first one did, such as an import, does not count."""
        for sample in self.looked[1:] or self.looked:
            self.add(sample)
        self.rate = self.count / (self.seconds - self.queued)
        self.about = f"a call takes {1e6 * self.best:.3g} us"
        if self.best < CHEAP:
            self.settle(Choice("inline", 1, f"{self.about}: cheapest so"))
        elif self.waited:
            self.about += " and waits"
            self.widen(FIRST)
        else:
            self.try_cores()

    def try_cores(self) -> None:
        """Have as many calls at once as there are cores."""
        self.about += " and computes"
        if not self.reader_waits:
            self.settle_back(FED)
        elif usable_cores() == 1:
            self.settle_back("there is one core")
        else:
            choice = Choice("thread", usable_cores(), f"{self.about}: trying a thread for each core")
            self.try_choice(choice, self.judge_cores)

    # several

    def widen(self, workers: int) -> None:
        """Make so many waiting calls at once."""
        self.before = self.choice
        self.try_choice(Choice(self.waiting, workers, f"{self.about}: trying {workers} at once"), self.judge_spread)

    def judge_spread(self) -> None:
        """Make twice as many waiting calls at once, as long as that helps and the reader waits."""
        if not self.reader_waits:
            self.settle(self.choice._replace(why=f"{self.about}: {FED}"))
        elif self.gain < GAIN and self.cores > COMPUTES:
            self.about = self.about.removesuffix(" and waits")  # but for the interpreter lock, or just once
            self.try_cores()
        elif self.gain < GAIN:
            self.settle_back(f"{self.choice.workers} at once are no faster")
        elif self.choice.workers >= MOST:
            self.settle(self.choice._replace(why=f"{self.about}: {MOST} is the most"))
        elif self.cores > COMPUTES * usable_cores():
            self.settle(self.choice._replace(why=f"{self.about}: all cores compute so"))
        else:
            self.rate = self.count / self.passed
            self.widen(2 * self.choice.workers)

    def judge_cores(self) -> None:
        """See whether threads compute side by side."""
        gain = f"{self.gain:.2f} times as fast"
        if self.gain >= GAIN and self.waited and self.reader_waits and self.before.workers == 1:
            self.about = f"{self.about.removesuffix(' and computes')} and waits"  # unlike the first few
            self.rate = self.count / self.passed
            self.widen(max(FIRST, 2 * self.choice.workers))
        elif self.gain >= GAIN and not (
            self.reader_waits and self.cores < FULL * self.choice.workers and self.may_leave
        ):
            self.settle(self.choice._replace(why=f"{self.about}: {gain} so"))
        elif self.gain >= GAIN:
            self.try_processes_too(gain)
        elif not self.reader_waits:
            self.settle_back(FED)
        elif self.may_leave:
            why = f"{self.about}, {gain} in threads: trying processes"
            self.try_choice(Choice("process", usable_cores(), why), self.judge_processes)
        else:
            self.settle_back(f"{gain} in {self.choice.workers}")

    @property
    def may_leave(self) -> bool:
        """Whether calls may be made in processes, and that could be worth it."""
        return self.processes and lock_is_held()

    def try_processes_too(self, gain: str) -> None:
        """Hold processes against threads that get on side by side, if not quite."""
        if self.now - self.begun < COMPARED:
            return
        self.before, self.rate = self.choice._replace(why=f"{self.about}: {gain} so"), self.count / self.passed
        why = f"{self.about}, {gain} in threads: trying processes too"
        self.try_choice(Choice("process", usable_cores(), why), self.judge_processes_too)

    def judge_processes_too(self) -> None:
        """See whether processes are faster than threads."""
        if self.now - self.begun < COMPARED:
            return
        if self.gain >= BETTER and self.reader_waits:
            self.settle(self.choice._replace(why=f"{self.about}: {self.gain:.2f} times as fast as in threads so"))
        else:
            self.settle(self.before)

    def judge_processes(self) -> None:
        """Check whether processes are worth their cost."""
        gain = f"{self.gain:.2f} times as fast"
        if self.gain >= GAIN or not self.reader_waits:
            self.settle(self.choice._replace(why=f"{self.about}: {gain} so"))
        else:
            self.settle_back(f"{gain} in processes")

    def stay(self, choice: Choice, why: str) -> None:
        """Make calls as before, as there are no processes for this choice; another iterator may have found that."""
        with self.lock:
            self.processes = False
            if choice is self.choice:
                self.settle_back(why)

    # in the end

    def settle_back(self, why: str) -> None:
        self.settle(self.before._replace(why=f"{self.about}: {why}"))

    def settle(self, choice: Choice) -> None:
        self.since = 0.0
        self.try_choice(choice, self.watch)

    def watch(self) -> None:
        """Try again when calls have changed, or when the reader waits and there are choices left to try."""
        self.known = self.known or self.best
        lasted = self.now - self.since
        if (self.changed and lasted >= min(self.patience, PATIENCE)) or (self.may_try_more and lasted >= self.patience):
            self.patience *= 2
            self.reset_measurements()
        else:
            self.begin(self.now)

    @property
    def changed(self) -> bool:
        """Whether it is evident that something has: calls, or the reader."""
        dearer = self.best > CHANGED * self.known
        cheaper = CHANGED * self.seconds < self.known * self.count
        return dearer or cheaper or (self.choice.why.endswith(FED) and self.waits > 0.9 * self.reads)

    @property
    def may_try_more(self) -> bool:
        """Whether the reader waits and more could be tried."""
        return self.reader_waits and not self.choice.why.endswith(("so", "most"))
