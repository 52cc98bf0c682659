"""AUTOTUNE: where a stage's functions are called, and how many calls at once, found out while it runs.

Reasons and measurements: docs/design.md, "AUTOTUNE".
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any, Final, NamedTuple

from asyncdata.executors.autotune_model import CHEAP, FIRST, Cost, PaceModel, Way, Where, named
from asyncdata.system import forks
from asyncdata.system.host_resources import lock_is_held, usable_cores

__all__ = ("Choice", "Period", "Sample", "Tuning", "Usage")

SINGLE: Final = 3
LOOK: Final = 0.02
"""How many single calls are measured, or how many seconds of them."""

PERIOD: Final = 0.2
WATCH: Final = 1.0
"""Seconds for which a choice is measured, and for which it is watched once it has been."""

WARM_UP: Final = 0.1
"""Seconds that do not count when processes are tried: their first calls fault in memory and fill caches."""

PATIENCE: Final = 4.0
MOST_PATIENCE: Final = 60.0
"""Seconds for which what was measured is believed while the reader waits: at first, twice as long each time, and at
most."""

SOONEST: Final = 1.0
LATEST: Final = 16.0
"""Seconds after which choices are tried again when the reader had enough meanwhile, or calls have changed evidently: at
first, and for the latter at most; for the former at most `MOST_PATIENCE`."""

CHANGED: Final = 2.5
"""How many times as long, or as short, calls must take to have changed evidently."""

USED: Final = 0.1
BLOCKED: Final = 1e-3
"""Calls in threads are in the reader's way if they compute for this part of the time, and it takes so many seconds to
get the interpreter lock."""

FED: Final = "enough for the reader"

REMEMBERED: Final = 20
"""How many choices the record has, the newest."""


class Choice(NamedTuple):
    """Where calls are made, how many at once, and why."""

    where: Where
    workers: int
    why: str

    @property
    def way(self) -> Way:
        """The choice without the reason."""
        return self.where, self.workers


class Decision(NamedTuple):
    """A choice that was made, and what was measured under it when the next one was."""

    after: float
    """Seconds from the first finished group to the choice."""
    where: Where
    workers: int
    why: str
    pace: float
    """Elements a second under it, in the last period that was looked at; 0 for one in which nothing was finished."""
    waited: float
    """The share of that time for which the reader waited."""
    own: float
    """The share of the calls' time that other programs did not take."""


class Usage(NamedTuple):
    """What is known of some groups: the seconds in which it would have computed, had there been a core for it; how
    often it gave up its core voluntarily, as only a waiting function does; and how many seconds its thread waited for
    the interpreter lock when it had given that up, 0 if that was not measured."""

    queued: float
    pauses: int
    blocked: float


class Sample(NamedTuple):
    """A finished group: its number of elements, its cost, and the choice it ran under."""

    elements: int
    seconds: float
    """That passed."""
    cpu: float
    """Those of them that it computed; unknown of tasks, then 0."""
    choice: Choice
    at: float
    """When it was done, in seconds of `time.perf_counter`."""
    usage: Usage | None = None
    """Not known of all groups."""
    nbytes: int = 0
    """Bytes of its elements and results; known only of single calls."""


class Period:
    """Counts what is done under one choice."""

    def __init__(self, begun: float = 0.0) -> None:
        self.begun = self.now = begun
        self.seconds = self.cpu = self.waited = 0.0
        self.count = self.groups = self.nbytes = 0
        # of the groups whose usage is known
        self.asked = self.queued = self.blocked = 0.0
        self.calls = self.probes = self.pauses = 0

    def add(self, sample: Sample) -> None:
        """Count a group."""
        self.begun = self.begun or sample.at - sample.seconds
        self.now = max(self.now, sample.at)
        self.count += sample.elements
        self.groups += 1
        self.seconds += max(sample.seconds, 1e-9)
        self.cpu += sample.cpu
        self.nbytes += sample.nbytes
        if (usage := sample.usage) is not None:
            self.asked += max(sample.seconds, 1e-9)
            self.queued += min(usage.queued, 0.95 * sample.seconds)
            self.blocked += usage.blocked
            self.probes += usage.blocked > 0
            self.pauses += usage.pauses
            self.calls += sample.elements

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return self.now - self.begun

    @property
    def starved(self) -> bool:
        """Whether the reader waited at least half of the time."""
        return 2 * self.waited >= self.elapsed

    @property
    def pace(self) -> float:
        """Elements a second, had other programs taken nothing; 0 if nothing was finished."""
        return self.count / self.elapsed / self.own if self.elapsed > 0 else 0.0

    @property
    def own(self) -> float:
        """The part of the calls' time that other programs did not take. What the calls compute on all cores together,
        others cannot have taken: of more threads than cores each waits for the others."""
        if not self.asked:
            return 1.0
        cores = self.cpu / self.elapsed / usable_cores() if self.elapsed > 0 else 0.0
        return min(1.0, max(1 - self.queued / self.asked, cores))

    @property
    def contended(self) -> bool:
        """Whether calls compute a good deal, and wait for the interpreter lock."""
        return self.cpu > USED * self.elapsed and self.blocked > BLOCKED * self.probes

    @property
    def each(self) -> float:
        """Seconds of a call, without those that other programs took."""
        return self.own * self.seconds / self.count

    @property
    def usual(self) -> Cost:
        """What a call took, without the time that other programs took, and what it computed."""
        return Cost(self.each, self.cpu / self.count)

    @property
    def pausing(self) -> bool:
        """Whether calls gave up their core, most of them."""
        return 2 * self.pauses >= self.calls

    @property
    def cost(self) -> Cost:
        """The mean cost of a call in this process. One that never gave up its core has done nothing but compute."""
        cpu = self.cpu / self.count
        return Cost(max(cpu, self.each) if self.pausing else cpu, cpu, self.nbytes / self.count)


class Tuning:
    """What is known of a stage's functions; stored for the next epoch.

    A few single calls show what a call costs: how long it takes, for how long of that it computes, and how many bytes
    it gives. From this and the number of cores follows which pace each choice can have at most (`PaceModel`). While the
    reader of the results waits for them, the most promising choice that has not been tried is tried, and its pace
    measured, until none is left that could be faster than the fastest one measured. While the reader does not wait,
    nothing is tried and nothing decided, as the pace then is the reader's.

    All is forgotten when calls take longer or shorter than they did. As something else may have been the cause, choices
    that were slower than they should be are tried again while the reader waits: ever more seldom, so that choices do
    not alternate forever.
    """

    def __init__(self, *, processes: bool = False, tasks: bool = False) -> None:
        self.processes = processes
        self.waiting: Where = "task" if tasks else "thread"
        self.samples: deque[Sample] = deque()
        self.lock = forks.lock()  # iterators of one dataset, in several threads, share the measurements of groups
        self.patience = PATIENCE
        self.caution = SOONEST
        self.repeated = False
        """Whether single calls were measured once more, as later ones were unlike them."""
        self.rested = False
        """Whether the reader has had enough since choices were tried last."""
        self.group = 1
        """How many elements a worker was handed at a time, last."""
        self.pool: object = None
        """Holds the worker processes for the next epoch, once they are used."""
        self.record: deque[Decision] = deque(maxlen=REMEMBERED)
        """The choices before the current one."""
        self.began = self.latest = self.chosen = 0.0
        """When the first group began, the latest one ended, and the current choice was made."""
        self.forget()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it without measurements: another process makes its own."""
        return partial(Tuning, processes=self.processes, tasks=self.waiting == "task"), ()

    @property
    def model(self) -> PaceModel:
        """What follows from what was measured."""
        processes = self.processes and lock_is_held()
        away = self.usual.get(("process", usable_cores()))
        return PaceModel(usable_cores(), self.waiting, processes, self.cost, self.paces, away and away.seconds)

    def forget(self) -> None:
        """Begin with one call at a time; awaiting one is known to wait."""
        self.looked: list[Sample] = []
        self.cost = Cost()
        self.paces: dict[Way, float] = {}
        """Elements a second under each choice that was measured while the reader waited."""
        self.usual: dict[Way, Cost] = {}
        """What a call took under each of them, and what it computed."""
        self.since = 0.0
        self.complete = False
        """Whether no choice is left that should be faster than the best one."""
        if self.waiting == "task":
            self.try_way(("task", FIRST))
        else:
            self.change(Choice("thread", 1, "trying one call at a time"), alone=True)

    def change(self, choice: Choice, *, alone: bool = False, settled: bool = False) -> None:
        """Make calls in this way from now on."""
        if self.latest:
            self.record.append(self.decision)
        self.choice, self.chosen = choice, self.latest
        self.alone = alone
        """Whether one call at a time is made, to measure a call."""
        self.settled = settled
        """Whether no choice is being tried."""
        self.warm = settled
        """Whether each worker has done its first group under this choice, and processes the first tenth of a second."""
        self.period = Period()

    @property
    def decision(self) -> Decision:
        """The current choice, and what was measured under it so far."""
        period = self.period
        waited = min(1.0, period.waited / period.elapsed) if period.elapsed > 0 else 0.0
        after = max(0.0, self.chosen - self.began)
        return Decision(round(after, 3), *self.choice, round(period.pace, 1), round(waited, 3), round(period.own, 3))

    @property
    def described(self) -> dict[str, Any]:
        """The current choice, and the history of choices up to it, as dicts; from any thread."""
        with self.lock:
            history = [one._asdict() for one in (*self.record, self.decision)]
            return {**self.choice._asdict(), "group": self.group, "history": history}

    def read(self, waited: float) -> None:
        """Take note that the reader has waited for results, for so many seconds."""
        self.period.waited += waited

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
        self.began, self.latest = self.began or sample.at - sample.seconds, sample.at
        if self.alone:
            self.looked.append(sample)
            if self.has_looked:
                self.look()
            return
        period = self.period
        period.add(sample)
        if period.groups % self.choice.workers:  # calls that take long may all end at the same time
            return
        if not self.warm:
            process = self.choice.where == "process"
            if process and period.elapsed < WARM_UP:
                return
            self.warm = True
            if process or period.elapsed < PERIOD:  # nothing is made twice of slow calls
                self.period = Period(sample.at)
                return
        if period.elapsed >= (WATCH if self.settled and self.complete and not self.rested else PERIOD):
            self.judge()

    # what was measured

    @property
    def has_looked(self) -> bool:
        """Whether enough single calls were measured. The first may have done what others need not, such as an import:
        unless it took very long, or did nothing but wait, there is a second one."""
        first, *others = self.looked
        known = PERIOD if first.cpu > USED * first.seconds else LOOK
        return first.seconds >= known or len(others) >= SINGLE - 1 or sum(other.seconds for other in others) >= LOOK

    def look(self) -> None:
        """Measure single calls. Work that only the first one did, such as an import, does not count."""
        period = Period()
        for sample in self.looked[1:] or self.looked:
            period.add(sample)
        self.cost = period.cost
        if self.cost.seconds < CHEAP:
            self.settle(("inline", 1), "cheapest so")
        else:
            self.paces["thread", 1], self.usual["thread", 1] = 1 / self.cost.seconds, self.cost
            self.decide(self.period.waited > 0)

    def measure(self) -> None:
        """Take note of the pace under the current choice, and of what a call costs."""
        period, cost = self.period, self.period.cost
        if self.choice.where == "thread":
            seconds = max(cost.cpu, min(self.cost.seconds, cost.seconds))
            self.cost = Cost(seconds, cost.cpu, self.cost.nbytes, self.choice.workers > 1 and period.pausing)
        self.paces[self.choice.way] = min(period.pace, self.model.most(self.choice.where))
        self.usual[self.choice.way] = period.usual

    def measure_again(self) -> None:
        """Take note of the current pace. If it has become slower, the others would be slower too. What a call took at
        first remains, as calls may be changing just now."""
        before, usual = self.paces[self.choice.way], self.usual[self.choice.way]
        self.measure()
        self.usual[self.choice.way] = usual
        change = min(1.0, self.paces[self.choice.way] / before)
        self.paces = {way: pace * (1 if way == self.choice.way else change) for way, pace in self.paces.items()}

    @property
    def misled(self) -> bool:
        """Whether calls are unlike the single ones, which imported a module or compiled something, or were of another
        kind of elements. In threads calls may take longer, but compute as long as alone."""
        if self.repeated or self.cost.seconds < CHEAP or self.choice.where == "task":
            return False
        slower = self.choice.where == "process" and differs(self.cost.seconds, self.period.each)
        return slower or self.computes_otherwise(self.cost)

    @property
    def has_changed(self) -> bool:
        """Whether calls take or compute evidently longer or shorter under this choice than they did."""
        before = self.usual[self.choice.way]
        return differs(before.seconds, self.period.each) or self.computes_otherwise(before)

    def computes_otherwise(self, before: Cost) -> bool:
        """Whether calls compute evidently longer or shorter than before, if that is a good deal of a core's time."""
        now = self.period.usual
        return (
            differs(before.cpu, now.cpu) and max(before.cpu, now.cpu) * self.period.count > USED * self.period.elapsed
        )

    # what follows

    def judge(self) -> None:
        """Decide by what was measured under the current choice."""
        self.since = self.since or self.period.now
        if not self.period.starved:
            self.keep()
        elif self.complete and self.choice.way in self.usual:
            self.watch()
        elif self.misled:
            self.repeated = True
            self.forget()
        else:
            self.measure()
            self.decide(True)

    def decide(self, starved: bool) -> None:
        """Try the most promising choice, or settle on the best one."""
        model = self.model
        way = model.promising
        self.complete = way is None
        if way is None:
            self.settle(model.best)
        elif starved:
            self.try_way(way)
        else:
            self.settle(model.best, FED)

    def keep(self) -> None:
        """Stay, as the reader has enough; but leave the interpreter lock to it if it is in want of that."""
        self.rested = True
        model, period = self.model, self.period
        process: Way = ("process", usable_cores())
        contended = self.settled and self.choice.where == "thread" and period.contended
        untried = process in model.ways and process not in self.paces
        if contended and untried and model.expected(process) * period.elapsed > period.count:
            self.complete = False
            self.settle(process, "leaves the interpreter lock to the reader")
        elif not self.settled:
            self.settle(self.choice.way, FED)
        else:
            self.period = Period(period.now)

    def watch(self) -> None:
        """Forget what was measured if calls have changed; after some time, or if the reader had enough meanwhile, try
        again what was slower than it should be."""
        period = self.period
        lasted = period.now - self.since
        if self.has_changed and lasted >= min(self.caution, LATEST):
            self.caution = min(2 * self.caution, MOST_PATIENCE)
            self.repeated = False
            self.forget()
        elif lasted >= (self.caution if self.rested else self.patience):
            if self.rested:
                self.caution = min(2 * self.caution, MOST_PATIENCE)
            else:
                self.patience = min(2 * self.patience, MOST_PATIENCE)
            self.since, self.rested = period.now, False
            self.measure_again()
            for way in self.model.disappointing:
                del self.paces[way]
            self.decide(True)
        else:
            self.period = Period(period.now)

    def stay(self, choice: Choice, why: str) -> None:
        """Make calls as before, as there are no processes for this choice; another iterator may have found that."""
        with self.lock:
            self.processes = False
            if choice is self.choice:
                self.complete = False
                self.settle(self.model.best, why)

    def try_way(self, way: Way) -> None:
        """Measure the pace under a choice."""
        self.change(Choice(*way, f"{self.about}: trying {named(way)}"))

    def settle(self, way: Way, why: str = "") -> None:
        """Make calls in this way until something changes."""
        self.change(Choice(*way, f"{self.about}: {why or self.model.measured}"), settled=True)

    @property
    def fallback(self) -> Choice:
        """The best choice without processes."""
        return Choice(*self.model._replace(processes=False).best, self.about)

    @property
    def about(self) -> str:
        """What a call was found to cost."""
        return "it is awaited" if self.waiting == "task" else self.cost.text


def differs(before: float, now: float) -> bool:
    """Return whether seconds are evidently others than before."""
    return not before / CHANGED <= now <= before * CHANGED
