"""A process that has pipelines in others is forked, or is itself one of multiprocessing's."""

from __future__ import annotations

import gc
import multiprocessing
import operator
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.executors.autotune import Choice, Tuning
from asyncdata.runtime.host_resources import usable_cores
from tests.marks import first_by_default

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
    tuning.settle(Choice("process", usable_cores(), "told so"))
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
