"""The resume benchmark counts what is lost and repeated, and its quick run meets every bar that no clock decides."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ()

ROOT = Path(__file__).resolve().parents[2]
LOADERS = ("asyncdata", "asyncdata, 64 unordered", "asyncdata, 64 coroutines unordered")


@pytest.fixture
def resume(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [*sys.path])  # a benchmark adds its folder
    return importlib.import_module("benchmarks.loaders.resume")


@pytest.mark.parametrize(("late", "lost", "repeated"), [(0, 0, 0), (1, 96, 0), (-1, 0, 96)])
def test_what_a_loader_loses_or_repeats_at_each_stop_is_counted(
    late: int, lost: int, repeated: int, resume: Any
) -> None:
    @contextmanager
    def loader(count: int, state: Any) -> Iterator[Any]:
        at = 0 if state is None else state + late
        batches = iter([list(range(32 * place, 32 * place + 32)) for place in range(at, count // 32)])
        yield resume.Opened(batches, lambda: resume.State(count // 32 - batches.__length_hint__(), 10))

    outcome = resume.run_with_stops(loader, 6400)
    assert (outcome.lost, outcome.repeated, outcome.size) == (lost, repeated, (10, 10, 10))
    assert len(outcome.taking) == len(outcome.resuming) == 3


def test_a_loader_that_ends_at_a_stop_has_lost_the_rest(resume: Any) -> None:
    @contextmanager
    def loader(count: int, state: Any) -> Iterator[Any]:
        yield resume.Opened(iter([[0]] if state is None else []), lambda: resume.State(b"", 0))

    assert resume.run_with_stops(loader, 640).lost == 639


@pytest.mark.slow
def test_quick_run_meets_the_bars_that_no_clock_decides(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    command = [sys.executable, ROOT / "benchmarks" / "loaders" / "resume.py", "--quick", "--json", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(file.read_text())["rows"]}
    exact = [f"{loader}: {what}" for loader in LOADERS for what in ("lost", "repeated", "state")]
    assert {name: rows[name]["passed"] for name in exact} == dict.fromkeys(exact, True)
    assert rows["interleave of 16 open files: state"]["passed"]
    assert "first element from 10**8 on" in done.stdout
