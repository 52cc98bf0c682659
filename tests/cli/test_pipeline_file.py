"""`asyncdata doctor` and `asyncdata bench` on a file of the user's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from asyncdata.__main__ import main

PIPELINE = """
import time
import asyncdata as ad

def fetch(x):
    time.sleep(0.004)
    return x

ds = ad.Dataset.range(200).map(fetch, num_parallel_calls=2).batch(10)

def build():
    return ds.take(3)

def of_two(path, size):
    return ds.take(size)

def fails(x):
    if x % 4 == 1:
        raise ValueError(f"{x} is damaged")
    return x

damaged = ad.Dataset.range(10).map(fails).batch(2)
broken = ad.Dataset.range(10).map(lambda x: exec("raise SystemExit(3)"))
elsewhere = 3
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    path = tmp_path / "a_pipeline.py"
    path.write_text(PIPELINE)
    return path


@pytest.fixture(autouse=True)
def leave_the_path_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "a_pipeline", raising=False)


def test_the_doctor_names_the_step_and_the_cure(pipeline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", f"{pipeline}:ds", "--seconds", "60"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"map\(fetch.* 200 ", told)
    assert "keeps 2 threads busy" in told
    assert "num_parallel_calls=" in told.splitlines()[-1]


def test_bench_tells_the_pace_and_the_ceiling(pipeline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", f"{pipeline}:ds", "--seconds", "2"]) == 0
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert rows == ["pace", "samples", "first", "waiting", "memory", "ceiling", "bottleneck"]


def test_a_function_that_returns_a_dataset_is_called(pipeline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", f"{pipeline}:build"]) == 0
    assert capsys.readouterr().out.startswith("3 elements in ")


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("nothing.py:ds", "there is no file"),
        ("a_pipeline.py", "its datasets are ds"),
        ("a_pipeline.py:other", "has no 'other'; its datasets are ds"),
        ("a_pipeline.py:elsewhere", "must be a Dataset, got 3 of type int; its datasets are ds"),
        ("a_pipeline.py:of_two", "must be a function without arguments: missing a required argument: 'path'"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    pipeline: Path, name: str, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", str(pipeline.parent / name)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert answer in line


@pytest.mark.parametrize("command", ["doctor", "bench"])
def test_elements_that_fail_are_named_and_the_rest_is_read(
    command: str, pipeline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, f"{pipeline}:damaged"]) == 0
    told = capsys.readouterr()
    assert told.err.startswith(
        "asyncdata: 3 elements failed; the last errors:\n  ValueError: 1 is damaged; in map(fails)"
    )
    assert "7 elements in " in told.out or "(7 in " in told.out


def test_what_ends_the_pipeline_ends_the_command(pipeline: Path) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", f"{pipeline}:broken"])


@pytest.mark.slow
def test_functions_of_the_file_are_found_in_worker_processes(tmp_path: Path) -> None:
    source = PIPELINE.replace("num_parallel_calls=2", "num_parallel_calls=2, executor='process'")
    source = source.replace("range(200)", "range(2000)")  # the start must not be most of it
    (tmp_path / "processes.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "asyncdata", "doctor", "processes.py:ds"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "2 processes" in done.stdout
