"""A process that has pipelines in others is forked, or is itself one of multiprocessing's."""

from __future__ import annotations

import gc
import multiprocessing
import operator
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.executors.autotune import Tuning
from asyncdata.system.host_resources import usable_cores
from tests.marks import first_by_default

FAULT = Path(__file__).parents[2] / "faults" / "in_child.py"
TWICE = ad.Dataset.range(50).map(lambda number: 2 * number, executor="process", num_parallel_calls=2)
BESIDE = ad.Dataset.range(50).map(lambda number: 2 * number).with_options(ad.Options(placement="process"))


def twice() -> None:
    assert list(TWICE) == list(range(0, 100, 2))


def beside() -> None:
    assert list(BESIDE) == list(range(0, 100, 2))


def nested(number: int) -> int:
    return number + sum(ad.Dataset.range(5).map(abs, executor="process", num_parallel_calls=1))


def ended(process: Any) -> int:
    """Return how a process ended, which it must do by itself."""
    process.start()
    process.join(60)
    process.kill()
    process.join()
    return process.exitcode


@pytest.mark.parametrize("method", first_by_default(["fork", "forkserver", "spawn"]))
@pytest.mark.parametrize("work", [twice, beside])
def test_a_process_of_multiprocessing_has_worker_processes_of_its_own_and_ends(
    work: Callable[[], None], method: str
) -> None:
    work()
    assert ended(multiprocessing.get_context(method).Process(target=work)) == 0
    work()


def test_a_fork_has_worker_processes_of_its_own_and_ends() -> None:
    twice()
    child = os.fork()
    if not child:
        try:
            twice()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    twice()


@pytest.mark.slow
def test_worker_processes_may_have_some_in_turn() -> None:
    assert ended(multiprocessing.get_context("spawn").Process(target=nested_twice)) == 0


def nested_twice() -> None:
    ds = ad.Dataset.range(4).map(nested, executor="process", num_parallel_calls=1)
    assert list(ds) == [10, 11, 12, 13]


SPREAD = ad.Dataset.range(50).map(lambda number: 2 * number, executor=ad.AUTOTUNE)


def spread() -> None:
    assert list(SPREAD) == list(range(0, 100, 2))


def test_a_process_that_may_start_none_makes_calls_elsewhere_though_autotune_had_found_processes() -> None:
    tuning = SPREAD.plan.executor
    assert isinstance(tuning, Tuning)
    tuning.settle(("process", usable_cores()), "told so")
    spread()
    assert ended(multiprocessing.get_context("fork").Process(target=spread, daemon=True)) == 0


def test_functions_that_are_gone_leave_no_open_files() -> None:
    ds = TWICE
    descriptors: list[int] = []
    gc.disable()
    try:
        for epoch in range(30):
            ds = ad.Dataset.range(3).map(partial(operator.add, epoch), executor="process", num_parallel_calls=2)
            assert list(ds) == [epoch, epoch + 1, epoch + 2]
            descriptors.append(len(os.listdir("/proc/self/fd")))
    finally:
        gc.enable()
    assert descriptors[-1] < descriptors[4] + 10


CHILDREN = [("spawn", "thread"), ("forkserver", "process"), ("spawn", "current"), ("forkserver", "thread")]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "placement"), CHILDREN)
def test_what_the_main_script_has_goes_to_workers_of_a_child(method: str, placement: str, tmp_path: Path) -> None:
    """There the script has another name, and what is kept in a file is the same all the same."""
    command = [sys.executable, str(FAULT), method, placement, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ran.stdout.splitlines() == ["[1, 3, 5, 9, 11]"] * 2, ran
