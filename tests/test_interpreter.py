"""Programs that end with a pipeline half read, by themselves or by Ctrl-C: see `tests/faults`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.marks import first_by_default

FAULTS = Path(__file__).parent / "faults"
PATIENCE = 60


def start(program: str, *arguments: str, temporary: Path) -> subprocess.Popen[str]:
    """Start one of the programs, with a folder for temporary files of its own."""
    root = FAULTS.parent.parent
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(FAULTS / f"{program}.py"), *arguments],
        env={**os.environ, "PYTHONPATH": str(root), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def interrupt(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Send Ctrl-C once the program says that it waits; again if it came just before the waiting began."""
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=PATIENCE / 4)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        return end(process)


def end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait for its end: a program that hangs is killed, and fails the test."""
    try:
        return process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"the interpreter did not end: {process.communicate()}") from None


HALF_READ = [
    (world, *way)
    for number, way in enumerate(
        product(["thread", "current"], ["blocked", "blocked_source", "busy"], ["return", "global", "exit", "raise"])
    )
    for world in (["plain", "async"] if number < 2 else [["plain", "async"][(number + number // 4) % 2]])
]
"""Each placement, pipeline and way to leave; all but the first ones in one of the two worlds, by turns."""


@pytest.mark.parametrize(("world", "placement", "pipeline", "leave"), first_by_default(HALF_READ, 4))
def test_an_interpreter_that_ends_with_a_pipeline_half_read(
    world: str, placement: str, pipeline: str, leave: str, tmp_path: Path
) -> None:
    process = start("leaving", world, placement, pipeline, leave, temporary=tmp_path)
    out, err = end(process)
    assert out == "read 0\n"
    if leave == "raise":
        assert process.returncode == 1
        assert err.strip().splitlines()[-1] == "RuntimeError: consumer"
    else:
        assert err == ""
        assert process.returncode == (3 if leave == "exit" else 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("placement", first_by_default(["thread", "current"]))
@pytest.mark.parametrize("where", first_by_default(["blocked_next", "async_step", "step", "next", "async_next"], 2))
def test_ctrl_c(where: str, placement: str, tmp_path: Path) -> None:
    for _ in range(3):  # CPython drops a KeyboardInterrupt that lands in a weakref's callback, and says so
        process = start("interrupted", where, placement, temporary=tmp_path)
        out, err = interrupt(process)
        if "Exception ignored in" not in err:
            break
    assert out == "interrupted\nnothing left\n"
    assert err == ""
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("placement", first_by_default(["thread", "current"]))
def test_ctrl_c_that_nobody_catches(placement: str, tmp_path: Path) -> None:
    process = start("interrupted", "uncaught", placement, temporary=tmp_path)
    _, err = interrupt(process)
    assert "KeyboardInterrupt" in err
    assert process.returncode == -signal.SIGINT
