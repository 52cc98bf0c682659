"""Training runs over the drop-in that are killed: each step is what it would have been, and no worker outlives them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.torch.killed_training import loader_of_rows

pytestmark = [pytest.mark.torch, pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for processes")]

PROGRAM = Path(__file__).parent / "killed_training.py"


def steps(folder: Path, workers: int, most: int) -> Iterator[tuple[int, list[int], set[int]]]:
    """Yield the steps of a run: number, rows and the processes it has; it is killed after `most` of them."""
    command = [sys.executable, str(PROGRAM), str(folder), str(workers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        for count, line in enumerate(run.stdout, 1):
            step, own, *rows = map(int, line.split())
            yield step, rows[::2], {*rows[1::2]} - {own}
            if count == most:
                run.send_signal(signal.SIGKILL)
    assert run.returncode == (0 if most > 20 else -signal.SIGKILL)


def wait_for_ends(processes: set[int]) -> None:
    """Wait until processes have ended."""
    for process in processes:
        try:
            handle = os.pidfd_open(process)
        except ProcessLookupError:
            continue
        assert select.select([handle], [], [], 60)[0], f"{process} outlived the run"
        os.close(handle)


def test_a_run_with_workers_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    loader = loader_of_rows(0)
    expected = [rows[:, 0].tolist() for _ in range(2) for rows in loader]
    found = dict[int, list[int]]()
    for most in (3, 9, 99):
        processes = set[int]()
        for step, rows, some in steps(tmp_path, 2, most):
            assert found.setdefault(step, rows) == rows, "a step that comes again is the same"
            processes |= some
        wait_for_ends(processes)
    assert found == dict(enumerate(expected))
