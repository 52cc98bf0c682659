"""Several worker processes of a server have a channel each, and one pipeline reads them all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")


def all_of(folder: Path, **how: Any) -> ad.Dataset[Any]:
    """What the channels below a folder hold, as it comes."""
    channels = sorted(map(str, folder.iterdir()))
    return ad.Dataset.from_list(channels).interleave(
        lambda path: ad.Dataset.from_channel(path, **how),
        cycle_length=len(channels),
        num_parallel_calls=len(channels),
        deterministic=False,
    )


def test_each_worker_takes_a_folder(tmp_path: Path) -> None:
    with ad.DurableChannel.for_worker(tmp_path) as first:
        with ad.DurableChannel.for_worker(tmp_path) as second:
            assert [Path(one.path).name for one in (first, second)] == ["0", "1"]
        with ad.DurableChannel.for_worker(tmp_path) as third:
            assert Path(third.path).name == "1"


@pytest.mark.web
def test_workers_of_a_server_and_one_trainer(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    command = [sys.executable, "-m", "uvicorn", "tests.web.programs.service:app", "--port", "0", "--workers", "2"]
    server = subprocess.Popen(
        [*command, "--timeout-worker-healthcheck", "120"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SPOOL": str(spool), "PYTHONPATH": os.getcwd()},
    )
    with server:
        assert server.stderr is not None
        url, started = "", 0
        while started < 2:
            line = server.stderr.readline()
            assert line, "the server did not start"
            url = url or "".join(re.findall(r"http://127.0.0.1:\d+", line))
            started += "Application startup complete" in line
        told = {"Content-Type": "application/json", "Connection": "close"}  # so that any of them may have the next
        with httpx.Client(base_url=url, headers=told, timeout=60) as client:
            for number in range(60):
                assert client.post("/ingest", content=b"%d" % number).json() == {"accepted": 1}
        server.terminate()
        server.stderr.read()
    assert sorted(path.name for path in spool.iterdir()) == ["0", "1"]
    with all_of(spool, follow=False).iterate() as items:
        found = [next(items) for _ in range(25)]
        state = items.state_dict()
    for path in spool.iterdir():
        ad.web.trim(path, state)
    assert sorted(found + list(all_of(spool, follow=False).iterate(state=state))) == list(range(60))
