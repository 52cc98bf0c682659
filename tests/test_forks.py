"""A process forks in the midst of an iteration: the child is right or told at once, and the parent is undisturbed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.marks import first_by_default

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")

PLACEMENTS = first_by_default(["thread", "current", "process"])
"""Each program takes seconds, as it starts processes: the default run has one placement."""
WAYS = first_by_default([("thread", "exit"), ("current", "exit"), ("process", "exit"), ("thread", "_exit")])
"""Placements, and how the child ends."""
HALF_READ = [
    ("thread", "pool", "exit"),
    ("thread", "none", "exit"),
    ("thread", "thread", "_exit"),
    ("thread", "pool", "multiprocessing"),
    ("current", "pool", "exit"),
    ("current", "none", "exit"),
    ("current", "thread", "_exit"),
    ("process", "pool", "exit"),
    ("process", "none", "exit"),
    ("process", "thread", "_exit"),
]
"""Placements, executors, and how the child ends."""
WITHIN = [
    *(("thread", "pool"), ("thread", "none"), ("thread", "thread")),
    *(("current", "none"), ("current", "thread"), ("process", "none"), ("process", "pool")),
]
"""Placements and executors."""


def check_program(*arguments: str) -> None:
    """Run a program that forks: it must end well, and print no error."""
    root = Path(__file__).parents[1]
    warnings = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]  # an error of a fork from Python 3.15 on
    program = [sys.executable, *warnings, str(root / "tests" / "faults" / "forked.py"), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    ended = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(("placement", "executor", "way"), first_by_default(HALF_READ))
def test_a_child_reads_a_dataset_anew_and_leaves_the_parent_what_it_reads(
    placement: str, executor: str, way: str
) -> None:
    check_program("half_read", placement, executor, way)


@pytest.mark.parametrize(("placement", "way"), WAYS)
def test_a_file_that_is_written_stays_the_parents(placement: str, way: str, tmp_path: Path) -> None:
    check_program("cached", placement, way, str(tmp_path))


@pytest.mark.parametrize(("placement", "way"), WAYS)
def test_a_cache_in_memory_that_is_half_full_is_right_in_both(placement: str, way: str) -> None:
    check_program("in_memory", placement, way)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_consumers_of_one_iteration_are_the_parents(placement: str) -> None:
    check_program("shared", placement, "exit")


def test_records_that_are_not_written_yet_are_written_once(tmp_path: Path) -> None:
    check_program("written", "exit", str(tmp_path))


def test_a_child_of_a_process_that_saves_may_not_go_on(tmp_path: Path) -> None:
    check_program("saved", str(tmp_path))


@pytest.mark.parametrize(("placement", "executor"), first_by_default(WITHIN))
def test_a_function_that_forks(placement: str, executor: str) -> None:
    check_program("forked_within", placement, executor)


def test_an_iterator_that_was_not_begun_may_be_read_in_a_child() -> None:
    check_program("not_begun")


def test_a_lock_is_gone_with_the_process_that_took_it_though_a_child_lives(tmp_path: Path) -> None:
    check_program("outlived", str(tmp_path))


@pytest.mark.slow
def test_a_fork_waits_until_no_thread_changes_what_the_child_uses() -> None:
    check_program("crowded")


def test_a_child_imports_nothing_that_another_thread_may_have_been_importing() -> None:
    check_program("imported")


def test_an_executor_of_the_users_that_was_used_before_the_fork_is_refused_in_the_child() -> None:
    check_program("executor_of_ones_own")


def test_workers_end_with_their_parent_though_a_child_lives() -> None:
    check_program("orphans")
