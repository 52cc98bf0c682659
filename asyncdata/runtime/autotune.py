"""AUTOTUNE: where a stage's functions are called, and how many calls at once, found out while it runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final, Literal, NamedTuple, TypeAlias

from asyncdata.runtime.machine import usable_cores

__all__ = ("Choice", "Sample", "Tuning", "Where")

Where: TypeAlias = Literal["inline", "thread", "task", "process"]

CHEAP: Final = 30e-6
"""Seconds below which a call is not worth a thread: to hand it over and wait for the interpreter lock takes longer."""

COMPUTES: Final = 0.7
"""The part of its time that a function computes, from which on it is taken to do nothing else."""

FIRST: Final = 8
MOST: Final = 64
"""How many calls that wait are made at once, to begin with and at most."""

GAIN: Final = 1.2
"""How many times as fast a wider choice must be to be kept: less may be other work on the machine."""

LOOK: Final = 0.02
PERIOD: Final = 0.2
"""Seconds of work after which single calls are judged, and seconds that pass before a choice is."""

CHANGED: Final = 4.0
"""How many times as dear or as cheap calls must have become to be tried anew."""


class Choice(NamedTuple):
    """Where calls are made, how many at once, and why."""

    where: Where
    workers: int
    why: str


class Sample(NamedTuple):
    """A group that is done: how many elements, what it took, and under which choice.

    That is seconds that passed, those that were computed, and how often it gave up its core by itself: a thread that
    computes on a busy machine loses it too, and does not wait for anything.
    """

    elements: int
    seconds: float
    cpu: float
    pauses: int
    choice: Choice
    at: float
    """When it was done, in seconds of `time.perf_counter`."""


class Tuning:
    """What is known of a stage's functions; kept for the next epoch.

    One call at a time tells what a call costs and whether it computes or waits. Cheap calls are made on the engine's
    thread. Functions that wait get twice as many threads (or tasks) as long as that is faster. Functions that
    compute get a thread for each core if that is faster, else worker processes if they may run there. Nothing is
    widened while the reader of the results does not wait for them. When the reader still waits, or calls have become
    much dearer or cheaper, all is tried anew, each time after twice as long: it does not go to and fro for ever.
    """

    def __init__(self, *, processes: bool = False, tasks: bool = False) -> None:
        self.processes = processes
        self.waiting: Where = "task" if tasks else "thread"
        self.samples: deque[Sample] = deque()
        self.patience = 1.0
        self.pool: object = None
        """What keeps the worker processes for the next epoch, once they are used."""
        self.look_anew()

    def look_anew(self) -> None:
        """Begin with one call at a time; awaiting one is known to wait."""
        self.cost = self.known = self.rate = 0.0
        self.about = ""
        if self.waiting == "task":
            self.go_on(Choice("task", FIRST, "it is awaited"), self.judge_spread)
        else:
            self.go_on(Choice("thread", 1, "trying one call at a time"), self.look)

    def go_on(self, choice: Choice, judge: Callable[[float], None]) -> None:
        """Make calls in this way, and judge it when enough have been made."""
        self.choice = choice
        self.judge = judge
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """Begin to count anew."""
        self.begun = now
        self.work = 0.0
        self.count = self.groups = self.waits = self.reads = 0
        self.best = Sample(1, inf, 0.0, 0, self.choice, now)

    def read(self, waits: bool) -> None:
        """Take note that the reader asks for results, and whether it has to wait."""
        self.reads += 1
        self.waits += waits

    @property
    def hungry(self) -> bool:
        """Whether the reader waits as often as not."""
        return 2 * self.waits >= self.reads

    def consider(self) -> Choice:
        """Look at what was done since, and return how the next group is done."""
        while self.samples:
            sample = self.samples.popleft()
            if sample.choice is self.choice:  # those of an earlier one tell nothing about this one
                self.learn(sample, sample.at)
        return self.choice

    def learn(self, sample: Sample, now: float) -> None:
        """Learn from one group."""
        alone = self.judge == self.look
        if not self.begun and not alone:  # threads and processes were started for the first one
            self.begin(now)
            return
        self.count += sample.elements
        self.groups += 1
        self.work += sample.seconds
        if sample.seconds / sample.elements < self.best.seconds / self.best.elements:
            self.best = sample  # the one least disturbed by what else the machine does
        if alone:
            if self.groups >= 3 or self.work >= LOOK:
                self.judge(0.0)
        elif now - self.begun >= PERIOD and self.groups >= 2 * self.choice.workers:
            self.judge(self.count / (now - self.begun))

    # one call at a time

    def look(self, _: float) -> None:
        """Decide by what single calls cost."""
        best = self.best
        self.cost = best.seconds / best.elements
        self.rate = 1 / self.cost
        self.about = f"a call takes {1e6 * self.cost:.3g} us"
        if self.cost < CHEAP:
            self.settle(Choice("inline", 1, f"{self.about}: cheapest so"))
        elif best.cpu < COMPUTES * best.seconds and 2 * best.pauses >= best.elements:
            self.about += " and waits"
            self.go_on(Choice("thread", FIRST, f"{self.about}: trying {FIRST} at once"), self.judge_spread)
        else:
            self.about += " and computes"
            self.settle_alone("enough for the reader") if not self.hungry else self.try_cores()

    def try_cores(self) -> None:
        if usable_cores() == 1:
            self.settle_alone("there is one core")
        else:
            choice = Choice("thread", usable_cores(), f"{self.about}: trying a thread for each core")
            self.go_on(choice, self.judge_cores)

    # several

    def judge_spread(self, rate: float) -> None:
        """Have twice as many calls that wait at once, as long as that helps and somebody waits for it."""
        workers, gain = self.choice.workers, rate / self.rate if self.rate else GAIN
        if not self.hungry:
            self.settle(self.choice._replace(why=f"{self.about}: enough for the reader"))
        elif gain < GAIN:
            self.settle(self.choice._replace(workers=max(1, workers // 2), why=f"{self.about}: more are no faster"))
        elif workers >= MOST:
            self.settle(self.choice._replace(why=f"{self.about}: {MOST} is the most"))
        else:
            self.rate = rate
            choice = Choice(self.waiting, 2 * workers, f"{self.about}: trying {2 * workers} at once")
            self.go_on(choice, self.judge_spread)

    def judge_cores(self, rate: float) -> None:
        """See whether threads compute side by side."""
        gain = rate / self.rate
        if gain >= GAIN:
            self.settle(self.choice._replace(why=f"{self.about}: {gain:.2f} times as fast so"))
        elif not self.hungry:
            self.settle_alone("enough for the reader")
        elif self.processes:
            choice = Choice(
                "process", usable_cores(), f"{self.about}, {gain:.2f} times as fast in threads: trying processes"
            )
            self.go_on(choice, self.judge_processes)
        else:
            self.settle_alone(f"{gain:.2f} times as fast in {self.choice.workers}")

    def judge_processes(self, rate: float) -> None:
        """See whether processes are worth what they cost."""
        gain = rate / self.rate
        if gain >= GAIN or not self.hungry:
            self.settle(self.choice._replace(why=f"{self.about}: {gain:.2f} times as fast so"))
        else:
            self.settle_alone(f"{gain:.2f} times as fast in processes")

    # in the end

    def settle_alone(self, why: str) -> None:
        self.settle(Choice("thread", 1, f"{self.about}: {why}"))

    def settle(self, choice: Choice) -> None:
        self.go_on(choice, self.watch)

    def watch(self, rate: float) -> None:
        """Try anew when calls have changed, or when the reader waits though more could be tried."""
        lasted = self.count / rate
        if lasted < self.patience:
            return
        cost = self.best.seconds / self.best.elements
        self.known = self.known or cost
        changed = not self.known / CHANGED <= cost <= self.known * CHANGED
        if changed or (self.hungry and not self.choice.why.endswith(("so", "most"))):
            self.patience *= 2
            self.look_anew()
        else:
            self.begin(self.begun + lasted)
