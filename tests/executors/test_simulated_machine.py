"""AUTOTUNE beside the best fixed choice, on simulated machines with 1 to 64 cores."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from itertools import accumulate

import pytest

from asyncdata.executors import autotune
from asyncdata.executors.autotune import Tuning
from tests.executors.simulated_machine import STEP, Busy, Function, Machine, Reader, Run, fixed_ways
from tests.marks import first_by_default

CHEAP = Function(held=1e-6)
BRIEF = Function(held=20e-6)
PYTHON = Function(held=600e-6)
SLOW_PYTHON = Function(held=10e-3)
DECODER = Function(held=200e-6, free=1.8e-3, nbytes=150_000)
MIXED = Function(held=700e-6, free=1.3e-3, nbytes=150_000)
COLD_JPEG = Function(held=250e-6, free=1e-3, nbytes=150_000)
JPEG = Function(held=150e-6, free=650e-6, nbytes=150_000, crowded=1.15)
NUMPY = Function(held=20e-6, free=2e-3, nbytes=4_000_000)
SLEEP = Function(held=50e-6, waits=4e-3)
SERVER = Function(held=100e-6, waits=20e-3)
SMALL_SERVER = Function(held=100e-6, waits=20e-3, most_at_once=20)
READ_AND_PARSE = Function(held=1e-3, waits=4e-3)
READ_AND_DECODE = Function(held=100e-6, free=1e-3, waits=4e-3, nbytes=150_000)
IMPORTS = Function(held=0.3)

COMPILES = (Busy(0.0, 3.0, lock=0.9, cores=1.0),)
COMPILES_LATER = (Busy(0.15, 3.0, lock=0.9, cores=1.0),)
EVALUATES = (Busy(2.0, 4.0, lock=0.1, cores=0.5), Busy(6.0, 8.0, lock=0.1, cores=0.5))
COMPILES_LONG = (Busy(0.3, 9.0, lock=0.95, cores=16.0),)
SLOW_AT_FIRST = (Busy(0.1, 8.0, lock=0.3, cores=1.0, pace=1500),)
PAUSES = tuple(Busy(begin, begin + 0.3, lock=0.9, cores=1.0) for begin in range(1, 12))
HUNGRY = Reader()
TRAINER = Reader(pace=20_000, lock=0.05, cores=0.1)
COMPILING = Reader(pace=20_000, lock=0.05, cores=0.1, away=COMPILES)
COMPILING_LATER = Reader(pace=20_000, lock=0.05, cores=0.1, away=COMPILES_LATER)
EVALUATING = Reader(pace=20_000, lock=0.05, cores=0.1, away=EVALUATES)
AFTER_LONG = Reader(pace=12_000, lock=0.3, cores=1.0, away=COMPILES_LONG)
WARMS_UP = Reader(pace=12_000, lock=0.3, cores=1.0, away=SLOW_AT_FIRST)
SLOW = Reader(pace=400, lock=0.1, cores=0.1)
PYTHON_TRAINER = Reader(pace=1000, lock=0.9, cores=0.9)
HOLDS_THE_LOCK = Reader(pace=2000, lock=0.5, cores=0.5)


def bursts(cores: float, seed: int) -> tuple[Busy, ...]:
    """Return when other programs take so many cores: again and again, for up to two seconds."""
    drawn = random.Random(seed)
    times = list(accumulate(drawn.uniform(0.05, 2.0) for _ in range(40)))
    return tuple(Busy(begin, end, cores=cores) for begin, end in zip(times[::2], times[1::2], strict=True))


SCENARIOS: dict[str, Machine] = {
    # 1 core
    "1: cheap": Machine(1, CHEAP),
    "1: python": Machine(1, PYTHON),
    "1: sleep, compiles first": Machine(1, SLEEP, COMPILING),
    "1: server, holds the lock": Machine(1, SERVER, HOLDS_THE_LOCK),
    "1: reads and parses, evaluates": Machine(1, READ_AND_PARSE, EVALUATING),
    # 2 cores
    "2: cheap, other programs": Machine(2, CHEAP, others=(Busy(0, 20, cores=1.0),)),
    "2: python": Machine(2, PYTHON),
    "2: python, compiles first": Machine(2, PYTHON, COMPILING),
    "2: python, a trainer in python": Machine(2, PYTHON, PYTHON_TRAINER),
    "2: decoder": Machine(2, DECODER),
    "2: decoder, compiles after the first batch": Machine(2, DECODER, COMPILING_LATER),
    "2: decoder, other programs for 3 s": Machine(2, DECODER, others=(Busy(0, 3, cores=1.0),)),
    "2: JPEG, its first calls are cold": Machine(2, COLD_JPEG, changes=(0.1, JPEG)),
    "2: mixed": Machine(2, MIXED),
    "2: sleep": Machine(2, SLEEP, TRAINER),
    "2: sleep, compiles first": Machine(2, SLEEP, COMPILING),
    "2: sleep, holds the lock": Machine(2, SLEEP, HOLDS_THE_LOCK),
    "2: small server": Machine(2, SMALL_SERVER),
    "2: sleep, compiles while large buffers are filled": Machine(2, SLEEP, COMPILING_LATER, room=4000),
    "2: server, compiles while large buffers are filled": Machine(2, SERVER, COMPILING_LATER, room=4000),
    "2: sleep, unsteady": Machine(2, SLEEP, TRAINER, unsteady=0.6),
    "2: python, unsteady": Machine(2, PYTHON, TRAINER, unsteady=0.6),
    "2: sleep, a pause each second": Machine(2, SLEEP, Reader(pace=20_000, lock=0.05, cores=0.1, away=PAUSES)),
    "2: cheap becomes python": Machine(2, CHEAP, changes=(4.0, PYTHON)),
    "2: decoder becomes sleep": Machine(2, DECODER, changes=(4.0, SLEEP)),
    "2: python becomes cheap while processes are tried": Machine(2, PYTHON, changes=(1.0, CHEAP)),
    "2: large arrays become python": Machine(2, NUMPY, changes=(4.0, PYTHON)),
    "2: reads and decodes, then waits alone": Machine(2, READ_AND_DECODE, changes=(0.7, SERVER)),
    "2: slow python becomes sleep": Machine(2, SLOW_PYTHON, changes=(4.0, SLEEP)),
    "2: JPEG, other programs again and again": Machine(2, JPEG, others=bursts(1.0, 0)),
    "2: python, other programs again and again": Machine(2, PYTHON, others=bursts(1.0, 1)),
    "2: sleep, other programs again and again": Machine(2, SLEEP, others=bursts(1.0, 2)),
    # 4 cores
    "4: python, slow reader": Machine(4, PYTHON, SLOW),
    "4: python, threads only": Machine(4, PYTHON, TRAINER, processes=False),
    "4: decoder, evaluates": Machine(4, DECODER, EVALUATING),
    "4: decoder, other programs": Machine(4, DECODER, others=(Busy(1, 20, cores=2.0),)),
    "4: large arrays": Machine(4, NUMPY),
    "4: reads and decodes": Machine(4, READ_AND_DECODE, TRAINER),
    "4: reads and parses, compiles first": Machine(4, READ_AND_PARSE, COMPILING),
    # 16 cores
    "16: cheap": Machine(16, CHEAP),
    "16: brief": Machine(16, BRIEF),
    "16: python, compiles after the first batch": Machine(16, PYTHON, COMPILING_LATER),
    "16: decoder": Machine(16, DECODER),
    "16: decoder, compiles after the first batch": Machine(16, DECODER, COMPILING_LATER),
    "16: decoder, evaluates": Machine(16, DECODER, EVALUATING),
    "16: decoder, trains after compiling for long": Machine(16, DECODER, AFTER_LONG, room=4000, seconds=20.0),
    "16: decoder, slow steps at first": Machine(16, DECODER, WARMS_UP, seconds=20.0),
    "16: decoder, unsteady": Machine(16, DECODER, TRAINER, unsteady=0.6),
    "16: JPEG, its first calls are cold": Machine(16, COLD_JPEG, TRAINER, changes=(0.1, JPEG)),
    "16: server, compiles for long": Machine(16, SERVER, AFTER_LONG, room=4000, seconds=20.0),
    "16: python, its first calls import": Machine(16, IMPORTS, TRAINER, changes=(1.0, PYTHON)),
    "16: decoder, threads only": Machine(16, DECODER, TRAINER, processes=False),
    "16: decoder, a trainer in python": Machine(16, DECODER, PYTHON_TRAINER),
    "16: sleep, compiles first": Machine(16, SLEEP, COMPILING),
    "16: decoder becomes python": Machine(16, DECODER, changes=(4.0, SLOW_PYTHON)),
    "16: server becomes python": Machine(16, SERVER, changes=(4.0, PYTHON)),
    "16: python becomes sleep while processes are tried": Machine(16, PYTHON, changes=(1.0, SLEEP)),
    "16: decoder, other programs again and again": Machine(16, DECODER, TRAINER, others=bursts(10.0, 3)),
    "16: python, 2 cores for it by a share that nobody tells": Machine(16, PYTHON, others=(Busy(0, 99, cores=14.0),)),
    "16: decoder, 2 cores for it by a share that nobody tells": Machine(16, DECODER, others=(Busy(0, 99, cores=14.0),)),
    # 64 cores
    "64: python": Machine(64, SLOW_PYTHON),
    "64: decoder, compiles first": Machine(64, DECODER, COMPILING),
    "64: server": Machine(64, SERVER, TRAINER),
    "64: reads and parses": Machine(64, READ_AND_PARSE, TRAINER),
    "64: large arrays, other programs": Machine(64, NUMPY, others=(Busy(0, 20, cores=32.0),)),
}


@pytest.fixture(autouse=True)
def threads_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)


def waits_from(machine: Machine) -> float:
    """Return when the reader begins to wait for good: after it has compiled, and when the function has changed."""
    compiled = [busy.end for busy in machine.reader.away if busy.begin < 1]
    return max([0.0, *compiled, *([machine.changes[0]] if machine.changes else [])])


def below(tuned: list[float], best: list[float], begin: int) -> Iterator[int]:
    """Yield how many steps in a row the average of half a second is below 0.9 of the best choice."""
    width, row = round(0.5 / STEP), 0
    for place in range(begin, len(tuned) - width):
        row = row + 1 if sum(tuned[place : place + width]) < 0.9 * sum(best[place : place + width]) else 0
        yield row


EACH_THIRD = sorted(SCENARIOS, key=lambda name: [*SCENARIOS].index(name) % 3)


@pytest.mark.parametrize("name", first_by_default(EACH_THIRD, len(SCENARIOS) // 3))
def test_it_is_as_fast_as_the_best_fixed_choice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a twentieth 3 s after the reader begins to wait, and never below nine tenths for longer than 5 s."""
    machine = SCENARIOS[name]
    monkeypatch.setattr(autotune, "usable_cores", lambda: machine.cores)
    run = Run(machine, Tuning(processes=machine.processes))
    tuned, begin = run.run(), waits_from(machine)
    first = round((begin + 3) / STEP)
    fixed = {way: Run(machine, way).run() for way in fixed_ways(machine)}
    best = max(fixed, key=lambda way: sum(fixed[way][first:]))
    ratio = sum(tuned[first:]) / sum(fixed[best][first:])
    history = list(dict.fromkeys(run.chosen))
    assert ratio >= 0.95, (ratio, best, history)
    assert max(below(tuned, fixed[best], round(begin / STEP))) * STEP <= 5, (best, history)
