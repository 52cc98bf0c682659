"""A machine in virtual time: cores, an interpreter lock, a function, a reader and other programs.

It computes rates and no single calls: in each step of 25 ms it divides the cores and the lock among those who want
them. AUTOTUNE's tuner gets samples of what is done, as it does from real workers; any fixed choice can take its place.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final, NamedTuple

from asyncdata.executors.autotune import Choice, Sample, Tuning, Usage
from asyncdata.executors.autotune_model import Way

__all__ = ("Busy", "Function", "Machine", "Reader", "Run")

STEP: Final = 0.025
SWITCH: Final = 0.005
"""Seconds until a thread that computes in Python hands the interpreter lock over."""
FIGHT: Final = 0.92
"""The pace of threads that take turns with the lock, as against one alone."""
READY: Final = 1 / 3
"""The part of the threads that have waited, or computed without the lock, when a reader that computes hands it over."""
START: Final = 0.6
"""Seconds until worker processes are there."""
HAND_OVER: Final = {"inline": 3e-7, "thread": 1e-6, "task": 1e-5, "process": 2e-6}
GROUP: Final = {"inline": (0.0, 1e-3), "thread": (2e-5, 5e-4), "task": (0.0, 1e-9), "process": (1.5e-4, 16e-3)}
"""Seconds for which the engine holds the lock for each element, for each group, and how long a group is."""
TO_PROCESS: Final = 2e-6
BYTES: Final = 4e9
"""Seconds that a worker process takes to send an element, and bytes that it copies in a second."""


@dataclass(frozen=True)
class Function:
    """Seconds of a call in which it computes with the lock, computes without it, and waits; bytes of an element."""

    held: float = 0.0
    free: float = 0.0
    waits: float = 0.0
    nbytes: int = 0
    most_at_once: float = inf
    """How many calls what it waits for can serve at once."""
    crowded: float = 1.0
    """How many times as long calls compute in threads that run side by side, and wait for one another."""

    @property
    def cpu(self) -> float:
        return self.held + self.free

    def at(self, choice: Choice) -> Function:
        """Return what it is under a choice."""
        crowded = self.crowded if choice.where == "thread" and choice.workers > 1 else 1.0
        return replace(self, held=self.held * crowded, free=self.free * crowded, crowded=crowded)


class Busy(NamedTuple):
    """When the reader does something else, or other programs run, how much of the lock and the cores they take, and how
    many elements a second the reader takes meanwhile."""

    begin: float
    end: float
    lock: float = 0.0
    cores: float = 0.0
    pace: float = 0.0


@dataclass(frozen=True)
class Reader:
    """How many elements it can take in a second; the parts of that time for which it has the lock, and a core."""

    pace: float = inf
    lock: float = 0.0
    cores: float = 0.0
    away: tuple[Busy, ...] = ()


@dataclass(frozen=True)
class Machine:
    """What a pipeline runs on, and for how long."""

    cores: int
    function: Function
    reader: Reader = field(default_factory=Reader)
    others: tuple[Busy, ...] = ()
    processes: bool = True
    changes: tuple[float, Function] | None = None
    """When the function becomes another one."""
    seconds: float = 12.0
    room: int = 200
    """How many elements are ready at most."""
    unsteady: float = 0.0
    """By what part the machine may be slower than else; another one in each half of a second."""


def at(times: tuple[Busy, ...], now: float) -> Busy | None:
    """Return what is going on now, if anything."""
    return next((busy for busy in times if busy.begin <= now < busy.end), None)


class Rates(NamedTuple):
    """What is possible in a step: calls a second; seconds of a call, of these without a core, and of one that meets no
    other call; seconds until a thread has the lock; the reader's pace."""

    calls: float
    seconds: float
    queued: float
    calm: float
    blocked: float
    reads: float


class Run:
    """Runs a machine with a tuner, or with a fixed choice, and notes how many elements the reader gets in each step."""

    def __init__(self, machine: Machine, chooser: Tuning | Way) -> None:
        self.machine = machine
        self.tuning = chooser if isinstance(chooser, Tuning) else None
        self.choice = chooser.choice if isinstance(chooser, Tuning) else Choice(*chooser, "fixed")
        self.noise = random.Random(0)
        self.now = 1.0
        self.level = 0.0  # elements that are ready
        self.credit = 0.0  # calls of each worker that are not yet complete
        self.coming = inf  # when processes are there
        self.reading = 1.0  # the part of the last step in which the reader had elements
        self.got: list[float] = []
        self.chosen: list[Choice] = []

    def run(self) -> list[float]:
        """Return how many elements the reader got in each step."""
        for _ in range(round(self.machine.seconds / STEP)):
            self.step()
        return self.got

    @property
    def time(self) -> float:
        """Seconds since the beginning."""
        return self.now - 1.0

    @property
    def function(self) -> Function:
        """What is called now."""
        change = self.machine.changes
        function = change[1] if change is not None and self.time >= change[0] else self.machine.function
        return function.at(self.choice)

    def step(self) -> None:
        """Let a step pass."""
        machine = self.machine
        away = at(machine.reader.away, self.time)
        rates = self.rates(away)
        made = rates.calls * STEP
        taken = min((away.pace if away else rates.reads) * STEP, self.level + made)
        waited = STEP
        if self.level + made - taken > machine.room:
            made = max(0.0, machine.room + taken - self.level)
            waited = 0.0
            rates = rates._replace(seconds=rates.calm, queued=0.0)
        self.level += made - taken
        self.reading = 1.0 if away else min(1.0, taken / (rates.reads * STEP))
        self.got.append(taken)
        self.now += STEP
        if self.tuning is not None:
            self.tuning.read(waited)
            self.sample(self.tuning, made, rates)
            self.follow(self.tuning)
        self.chosen.append(self.choice)

    def rates(self, away: Busy | None) -> Rates:
        """Divide cores and the lock."""
        machine, function, (where, workers, _) = self.machine, self.function, self.choice
        process = where == "process"
        lock, own = (away.lock, away.cores) if away else (machine.reader.lock * self.reading, machine.reader.cores)
        other = at(machine.others, self.time)
        cores = machine.cores - (other.cores if other else 0.0)
        rival = min(workers, machine.cores)  # more threads do not push the reader aside
        cores = max(cores - own * (1.0 if away else self.reading), cores * rival / (rival + 1))
        if where == "inline":
            cores = min(cores, 1.0)
        cpu = function.cpu + (TO_PROCESS + function.nbytes / BYTES if process else 0.0)
        retaken = 0.0 if process else lock * SWITCH / 2 * (1 if function.free or function.waits else 0)
        per_group, group = GROUP[where]
        engine = HAND_OVER[where] + per_group / max(1.0, group / (cpu + function.waits))
        held = engine + (0.0 if process else function.held)
        alone = min(workers, function.most_at_once) / (function.waits + retaken + cpu)
        wanted = alone * held  # of the lock
        rivals = min(workers, max(1.0, wanted)) if not process else 1.0
        share = 1.0 if not lock else max(1 - lock, rivals / (rivals + 1))
        if retaken:  # the reader takes the lock back when they wait or compute without it
            ready = max(1.0, READY * workers)
            share = 1 - lock + lock * ready * held / (SWITCH + ready * held)
        by_lock = share / held * (FIGHT if wanted > 1 and not process and workers > 1 else 1.0)
        by_cores = cores / (cpu + (engine if where != "process" else 0.0))
        calls = min(alone, by_lock, by_cores) * self.unsteadiness()
        seconds = workers / calls
        demand = min(alone, by_lock)
        queued = workers / calls - workers / demand if by_cores < demand else 0.0
        left = 1 - calls * held  # of the lock, for the reader
        slow = min(1.0, left / lock) if lock and left < lock else 1.0
        calm = (
            function.waits + retaken + cpu
            if process
            else function.waits + retaken + function.free + function.held / share
        )
        return Rates(calls, seconds, max(0.0, queued), calm, lock * SWITCH / 2, machine.reader.pace * max(slow, 0.01))

    def unsteadiness(self) -> float:
        """Return how fast the machine is in this step, the same for any choice."""
        half = random.Random(int(2 * self.now)).random()
        return (1 + 0.1 * (self.noise.random() - 0.5)) * (1 - self.machine.unsteady * half)

    def sample(self, tuning: Tuning, made: float, rates: Rates) -> None:
        """Tell the tuner what was done."""
        function, workers = self.function, self.choice.workers
        waits = function.waits or function.crowded > 1 or rates.seconds - rates.queued > 1.3 * function.cpu

        def add(count: int, place: int = 0) -> None:
            cpu = 0.0 if self.choice.where == "task" else count * function.cpu
            usage = Usage(count * rates.queued, count if waits else 0, rates.blocked)
            when = self.now - STEP * (1 - place / workers) if count > 1 else self.now
            tuning.samples.append(
                Sample(count, count * rates.seconds, cpu, self.choice, when, usage, count * function.nbytes)
            )

        self.credit += made / workers
        if tuning.alone:
            for _ in range(min(3, int(self.credit))):
                add(1)
            self.credit = 0.0 if self.credit >= 1 else self.credit
            return
        count = int(self.credit)
        self.credit -= count
        for place in range(workers if count else 0):
            add(count, place + 1)

    def follow(self, tuning: Tuning) -> None:
        """Change workers as the tuner says, to processes when there are some."""
        choice = tuning.consider()
        if choice is self.choice:
            return
        if choice.where == "process" and self.choice.where != "process":
            self.coming = min(self.coming, self.now + START)  # they stay, once started
            if self.now < self.coming:
                choice = tuning.fallback
        if choice.way != self.choice.way:
            self.credit = 0.0
        self.choice = choice


def fixed_ways(machine: Machine) -> list[Way]:
    """Return the choices that can be made by hand, up to as many calls at once as AUTOTUNE may make."""
    widths = {1, 2, 4, 8, 16, 32, 64, machine.cores}
    ways: list[Any] = [("inline", 1), *(("thread", width) for width in sorted(widths))]
    return [*ways, ("process", machine.cores)] if machine.processes else ways
