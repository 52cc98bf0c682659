"""What the log says when nothing comes: which step waits for what, and where it is, once for each element."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

import asyncdata as ad
from asyncdata.engines import stall
from asyncdata.engines.stall_report import stall_report

SOON = 0.05


class Gate:
    """Lets the first element pass, and holds up others until it is opened by the log's record."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def pass_through(self, x: int) -> int:
        assert x == 0 or self.opened.wait(60)
        return x

    async def wait_for(self, x: int) -> int:
        while x and not self.opened.is_set():
            await asyncio.sleep(0.01)
        return x

    def elements(self) -> Iterator[int]:
        yield 0
        assert self.opened.wait(60)
        yield 1


class Opener(logging.Handler):
    """Opens a gate when there is a record, and keeps what it says."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self.gate = gate
        self.heeds = False
        """Not before the pipeline runs, which may take its time too."""
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if self.heeds and "blocked the event loop for" not in record.getMessage():  # as all may be, on a busy machine
            self.told.append(record.getMessage())
            self.gate.opened.set()


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def opener(gate: Gate) -> Iterator[Opener]:
    handler = Opener(gate)
    logging.getLogger("asyncdata").addHandler(handler)
    yield handler
    logging.getLogger("asyncdata").removeHandler(handler)


PIPELINES: dict[str, tuple[Callable[[Gate], ad.Dataset[Any]], str, str]] = {
    "a function in place": (
        lambda gate: ad.Dataset.range(4).map(gate.pass_through).batch(1),
        "map(Gate.pass_through) has not returned",
        "in pass_through",
    ),
    "threads": (
        lambda gate: ad.Dataset.range(4).map(gate.pass_through, num_parallel_calls=2).map(abs),
        "map(Gate.pass_through, num_parallel_calls=2) works on ",
        "in pass_through",
    ),
    "tasks": (
        lambda gate: ad.Dataset.range(4).map(gate.wait_for, num_parallel_calls=2).map(abs),
        "map(Gate.wait_for, num_parallel_calls=2) works on ",
        "in wait_for",
    ),
    "a coroutine in place": (
        lambda gate: ad.Dataset.range(4).map(gate.wait_for).batch(1),
        "map(Gate.wait_for) has not returned",
        "in wait_for",
    ),
    "a generator": (
        lambda gate: ad.Dataset.from_generator(gate.elements).batch(1),
        "from_generator(Gate.elements) is waited for",
        "in elements",
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_the_step_is_named_with_its_stack(name: str, gate: Gate, opener: Opener) -> None:
    build, words, line = PIPELINES[name]
    with build(gate).with_options(ad.Options(warn_after=SOON)).iterate() as elements:
        next(elements)
        opener.heeds = True
        assert len(list(elements)) in {1, 3}
    told = opener.told[0]
    assert told.startswith("nothing has come for ")
    assert words in told
    assert line in told


@pytest.mark.parametrize("placement", ["thread", "current"])
async def test_those_who_await_are_told_too(placement: Any, gate: Gate, opener: Opener) -> None:
    ds = ad.Dataset.range(4).map(gate.wait_for, num_parallel_calls=2)
    async with ds.with_options(ad.Options(warn_after=SOON, placement=placement)).iterate() as numbers:
        assert await anext(numbers) == 0
        opener.heeds = True
        assert [x async for x in numbers] == [1, 2, 3]
    assert "map(Gate.wait_for, num_parallel_calls=2) works on " in opener.told[0]
    assert "in wait_for" in opener.told[0]


def test_a_plain_loop_in_its_own_thread_is_told(gate: Gate, opener: Opener) -> None:
    ds = ad.Dataset.range(4).map(gate.wait_for, num_parallel_calls=2)
    with ds.with_options(ad.Options(warn_after=SOON, placement="current")).iterate() as numbers:
        assert next(numbers) == 0
        opener.heeds = True
        assert list(numbers) == [1, 2, 3]
    assert "map(Gate.wait_for, num_parallel_calls=2) works on " in opener.told[0]


CURRENT = ad.Options(warn_after=0.5, placement="current")
"""Longer than a busy machine takes until a function is called that blocks."""


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a loop count as blocked that is late by less."""
    monkeypatch.setattr(stall, "BLOCKED", 0.2)


def watches() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "asyncdata-watch"]


def no_watch() -> bool:
    """Whether no thread watches. One that has ended its work, which its owner waits for, may be there for a moment."""
    for thread in watches():
        thread.join(60)
    return not watches()


def said_of_a_blocked_loop(opener: Opener, step: str) -> None:
    told = opener.told[0]  # the next may say how long it was
    assert f"the event loop is blocked by {step}" in told.splitlines()[0]
    assert "thread MainThread, which runs the event loop" in told
    assert "in pass_through" in told
    assert no_watch()


@pytest.mark.usefixtures("late")
def test_a_plain_loop_whose_function_blocks_it_is_told(gate: Gate, opener: Opener) -> None:
    with ad.Dataset.range(3).map(gate.pass_through).with_options(CURRENT).iterate() as numbers:
        assert next(numbers) == 0
        opener.heeds = True
        assert list(numbers) == [1, 2]
    said_of_a_blocked_loop(opener, "map(Gate.pass_through)")


@pytest.mark.slow
@pytest.mark.usefixtures("late")
async def test_a_loop_that_a_coroutine_blocks_is_told_of(gate: Gate, opener: Opener) -> None:
    async def blocks(x: int) -> int:
        await asyncio.sleep(0)
        return gate.pass_through(x)

    opener.heeds = True
    async with ad.Dataset.range(3).map(blocks, num_parallel_calls=2).with_options(CURRENT).iterate() as numbers:
        assert [x async for x in numbers] == [0, 1, 2]
    said_of_a_blocked_loop(opener, "map(")


@pytest.mark.slow
@pytest.mark.usefixtures("late")
async def test_a_loop_that_others_block_is_told_of(gate: Gate, opener: Opener) -> None:
    async def others() -> None:
        opener.heeds = True
        gate.pass_through(1)

    async with ad.Dataset.range(3).map(gate.wait_for, num_parallel_calls=2).with_options(CURRENT).iterate() as numbers:
        assert await anext(numbers) == 0
        other = asyncio.ensure_future(others())
        assert [x async for x in numbers] == [1, 2]
        await other
    said_of_a_blocked_loop(opener, "code outside the pipeline")


async def test_the_thread_that_watches_ends_with_a_pipeline_that_is_left() -> None:
    async with ad.Dataset.range(3).map(asyncio.sleep, num_parallel_calls=2).with_options(CURRENT).iterate() as numbers:
        await anext(numbers)
        assert watches()
    assert no_watch()


def test_each_wait_is_told_once(gate: Gate, opener: Opener) -> None:
    with ad.Dataset.range(3).map(gate.pass_through).with_options(ad.Options(warn_after=SOON)).iterate() as numbers:
        assert next(numbers) == 0
        opener.heeds = True
        assert next(numbers) == 1
        assert len(opener.told) == 1


def test_a_report_holds_no_frames() -> None:
    """Frames in a circle would hold what any thread has, such as a pool of processes, until they are collected."""
    begun, over, found = threading.Event(), threading.Event(), list[ref[Gate]]()

    def waits() -> None:
        local = Gate()
        found.append(ref(local))
        begun.set()
        assert over.wait(60)

    thread = threading.Thread(target=waits)
    thread.start()
    assert begun.wait(60)
    gc.disable()
    try:
        assert "in waits" in stall_report(1.0, [], [thread], [])
        over.set()
        thread.join()
        assert found[0]() is None
    finally:
        over.set()
        gc.enable()


@pytest.mark.slow
def test_a_process_of_its_own_tells_by_itself(tmp_path: Path) -> None:
    program = tmp_path / "stalls.py"
    program.write_text(
        """
import os, sys, time
import asyncdata as ad

def hangs(x):
    while not os.path.exists(sys.argv[1]) and x == 1:
        time.sleep(0.01)
    return x

options = ad.Options(placement="process", warn_after=0.05)
print(list(ad.Dataset.range(3).map(hangs).with_options(options)), flush=True)
"""
    )
    flag = tmp_path / "go on"
    with subprocess.Popen(
        [sys.executable, program, flag], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stderr is not None
        told = "".join(islice(run.stderr, 3))
        flag.touch()
        out, _ = run.communicate(timeout=120)
    assert "nothing has come for" in told
    assert "map(hangs) has not returned" in told
    assert "in hangs" in told
    assert out == "[0, 1, 2]\n"


@pytest.mark.parametrize("wrong", [0, -1, True, "60", math.nan])
def test_what_is_no_time_is_refused(wrong: Any) -> None:
    with pytest.raises(ad.PlanError, match=r"Options\(warn_after=\) must be seconds above 0"):
        ad.Options(warn_after=wrong)


def test_never_may_be_said(opener: Opener) -> None:
    ds = ad.Dataset.range(3).map(lambda x: x, num_parallel_calls=2)
    opener.heeds = True
    assert list(ds.with_options(ad.Options(warn_after=math.inf))) == [0, 1, 2]
    assert opener.told == []
