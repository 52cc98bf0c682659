"""A process that may open few files: a pipeline gives all its elements, or an error that says so, and never waits."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.descriptors import COUNT
from tests.marks import first_by_default

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts what is in /proc/self/fd")

FAULT = Path(__file__).parent / "faults" / "descriptors.py"

PIPELINES = (
    ("process", "process", "rows", "list"),
    ("process", "thread", "files", "list"),
    ("none", "process", "files", "list"),
    ("thread", "current", "files", "list"),
    ("process", "thread", "rows", "tee"),
    ("none", "process", "files", "save"),
    ("process", "current", "files", "cache"),
    ("thread", "process", "rows", "tee"),
    ("none", "thread", "files", "snapshot"),
    ("thread", "current", "rows", "save"),
    ("none", "process", "rows", "load"),
    ("none", "current", "rows", "load"),
    ("thread", "thread", "rows", "load"),
    ("process", "process", "rows", "snapshot"),
)
"""Executor, placement, source, and how it is read."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("files")
    for part in range(COUNT):
        made.joinpath(f"{part}.txt").write_text(f"{part}\n")
    return made


def lines(limits: Sequence[int], pipeline: tuple[str, ...], folder: Path, epochs: int) -> list[str]:
    """Return what processes print that may open so many files; they must not fail or wait."""
    command = [sys.executable, str(FAULT), ",".join(map(str, limits)), *pipeline, str(folder), str(epochs)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stderr.splitlines()) < 60, ran.stderr  # a fork server that cannot go on tells eight lines
    printed = ran.stdout.splitlines()
    last = [line.removeprefix("then ") for line in printed if line.startswith("then ")]
    assert len(last) == len(limits)
    for line in last:
        check_outcome(line, ran.stderr)  # processes that were started before still may open few
    return [line for line in printed if not line.startswith("then ")]


def check_outcome(line: str, told: str = "") -> None:
    assert line == "all" or ("Too many open files" in line and line.startswith("error")), told
    assert "cannot be started" not in line or "ulimit -n" in line


def check_few(limits: Sequence[int], pipeline: tuple[str, ...], folder: Path) -> None:
    printed = lines(limits, pipeline, folder, 2)
    assert len(printed) == 2 * len(limits)
    for line in printed:
        check_outcome(line)


FEW = [(24, PIPELINES[2]), (28, PIPELINES[4]), (14, PIPELINES[9]), (16, PIPELINES[0])]


@pytest.mark.parametrize(("limit", "pipeline"), first_by_default(FEW))
def test_few_descriptors_are_an_error_and_no_wait(limit: int, pipeline: tuple[str, ...], folder: Path) -> None:
    check_few([limit], pipeline, folder)


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", PIPELINES, ids="-".join)
def test_any_number_of_descriptors_is_enough_or_an_error(pipeline: tuple[str, ...], folder: Path) -> None:
    first = 8 + 6 * (PIPELINES.index(pipeline) % 2)  # every other limit, in turns
    check_few(range(first, 44, 12), pipeline, folder)


FIRST = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
import asyncdata as ad
ds = ad.Dataset.range(5).map(abs, num_parallel_calls=2)
held = []
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    for _ in range(int(sys.argv[1])):
        os.close(held.pop())
try:
    list(ds)
except OSError as error:
    print(error.errno)
for each in held:
    os.close(each)
print(list(ds))
"""


@pytest.mark.parametrize("left", first_by_default([1, 2, 3, 4]))
def test_a_first_event_loop_without_descriptors_is_an_error_and_no_abort(left: int) -> None:
    command = [sys.executable, "-c", FIRST, str(left)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (ran.returncode, ran.stdout.split("\n", 1)) == (0, [f"{errno.EMFILE}", "[0, 1, 2, 3, 4]\n"]), ran.stderr


STARTED = Path(__file__).parent / "faults" / "standard_descriptors.py"
CLOSED = ("0<&- 1>&- 2>&-", "1>&- 2>&-", "2>&-", "1>&-", "0<&-")
WAYS = ("thread", "process", "placement", "files", "inline")
WITHOUT = [(WAYS[:2], CLOSED[0]), (WAYS[2:], CLOSED[0]), *((WAYS, closed) for closed in CLOSED[1:])]


@pytest.mark.parametrize(("ways", "closed"), first_by_default(WITHOUT))
def test_pipelines_run_in_a_process_that_was_started_without_standard_descriptors(
    ways: tuple[str, ...], closed: str
) -> None:
    command = ["sh", "-c", f'exec "$0" "$@" {closed}', sys.executable, str(STARTED), *ways]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr


SAME = [PIPELINES[place] for place in (0, 1, 4, 5, 10, 13)]


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", SAME, ids="-".join)
def test_epochs_end_with_as_many_open_files_as_they_began_with(pipeline: tuple[str, ...], folder: Path) -> None:
    printed = lines([128], pipeline, folder, 20)
    assert printed[::2] == ["all"] * 20
    counts = [int(line.removeprefix("open ")) for line in printed[1::2]]
    # The first epochs bring slots of shared memory into use. Later another process may begin, as the last one was not
    # idle yet: 6 at most. One left behind in each epoch would be 9 or more.
    assert min(counts[-4:]) <= max(counts[:8]) + 8, f"{counts}"
