"""Logs in an object store: each piece is an object, and they are read as one log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.__main__ import main
from asyncdata.persistence import run_log_files as log_files
from asyncdata.recorder.audit import audit
from asyncdata.recorder.log_reader import read_logs
from tests.remote.conftest import OPTIONS, Bucket

pytestmark = pytest.mark.remote

PROGRAM = """
import asyncdata as ad
ds = ad.Dataset.range(40).shuffle(10, seed=1).shard(2, 0).batch(4)
"""


def share(bucket: Bucket, index: int) -> ad.Dataset[Any]:
    ds = ad.Dataset.range(40).shuffle(10, seed=1).shard(2, index).batch(4)
    return ds.with_options(ad.Options(record=f"{bucket.url}/run.jsonl"))


@pytest.fixture(autouse=True)
def surroundings(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """What tells all tools where the server is."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.options["endpoint"])
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    for name, value in OPTIONS.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)


def test_all_commands_read_the_logs_of_runs_that_stopped_and_went_on(
    bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole: list[list[Any]] = []
    for index in range(2):
        ds = share(bucket, index)
        with ds.iterate() as batches:
            before = [next(batches).tolist() for _ in range(3)]
            state = batches.state_dict()
            next(batches)
        whole.append(before + [batch.tolist() for batch in ds.iterate(state=state)])
    logs, program = f"{bucket.url}/run*.jsonl", tmp_path / "pipe_of_the_remote_log.py"
    program.write_text(PROGRAM)
    assert len(log_files.paths_of([logs])) == 6
    assert main(["audit", logs, "--against", f"{program}:ds"]) == 0
    assert "10 steps, 40 records; 2 steps were repeated after restarts: complete" in capsys.readouterr().out
    assert main(["replay", f"{bucket.url}/run-0-of-2.jsonl", f"{program}:ds", "--step", "4"]) == 0
    assert str(whole[0][4]) in capsys.readouterr().out
    assert main(["trace-record", "range(40):7", f"{program}:ds", logs]) == 0
    capsys.readouterr()
    ds = share(bucket, 1)
    assert [batch.tolist() for batch in ds.iterate(state=ds.state_before(4, epoch=0))] == whole[1][4:]
    first = log_files.paths_of([f"{bucket.url}/run-1-of-2.jsonl"])[0]
    bucket.client.delete_object(Bucket="tests", Key=first.removeprefix("s3://tests/"))
    assert main(["audit", logs]) == 1
    assert main(["audit", f"{bucket.url}/none.jsonl"]) == 2
    assert "no log matches" in capsys.readouterr().err


def test_what_could_not_be_written_is_an_error_and_is_written_with_the_next_piece(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(url: str, data: bytes) -> None:
        raise ConnectionError("no answer")

    with share(bucket, 0).iterate() as batches:
        next(batches)
        with monkeypatch.context() as now, pytest.raises(ConnectionError):
            now.setattr(log_files, "put_object", refused)
            batches.state_dict()
        for _ in batches:
            pass
    (found,) = audit(read_logs(log_files.paths_of([f"{bucket.url}/run*.jsonl"])))
    assert (found.steps, found.because) == (5, ["rank 1 of 2 has no log"])


EXITING = """
import asyncio, sys
import asyncdata as ad
ds = ad.Dataset.range(40).batch(4).with_options(ad.Options(record=sys.argv[1]))

async def read():
    batches = aiter(ds)
    for _ in range(3):
        await anext(batches)
    return batches

batches = asyncio.run(read())
"""


def test_what_was_read_before_a_process_ended_is_in_the_log(bucket: Bucket) -> None:
    log = f"{bucket.url}/run.jsonl"
    subprocess.run([sys.executable, "-c", EXITING, log], check=True, timeout=60)
    (found,) = audit(read_logs(log_files.paths_of([log])))
    assert found.because == ["the one process is not at the end of the epoch: 3 steps are in its log"]


@pytest.mark.slow
def test_a_run_of_4_ranks_and_then_3_that_is_killed_again_and_again_is_complete(bucket: Bucket) -> None:
    benchmark = Path(__file__).parents[2] / "benchmarks" / "loaders" / "audit.py"
    command = [sys.executable, str(benchmark), "--quick", "--store", bucket.url]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert (
        out.count("2500 records") == out.count(": complete, each once") == 4
    )  # any order, and an order; also compared
