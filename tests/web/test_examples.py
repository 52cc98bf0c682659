"""The programs of examples/web/ run, each with a real server and its clients, and print what they promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.running import said

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "web").glob("*.py"))

PRINTED = {
    "01_online_training": [
        r"500 samples, the model says [01]\.\d\d where 1\.50 is right",
        r"stopped and started again",
        r"2000 samples, the model says 1\.(49|50|51) where 1\.50 is right",
    ],
    "02_rollouts": [
        r"150 updates; the best arm is played (9\d|100)% of the time",
        r"dropped as stale: True, sent = taken \+ dropped \+ left: True",
    ],
    "03_clients": [r"httpx: True", r"aiohttp: True"],
    "04_lag": [
        r" +trained on  of the slow  dropped  staleness  at most",
        r"min_version +5\d{3} +0 +2\.6% +0\.1\d +1",
        r"max_lag +2\d{3} +14\d +0\.0% +0\.\d\d +3",
    ],
    "05_remote_workers": [
        "60 rollouts, 15 versions, thrown away: 0%",
        "at most 4 versions old: True",
        "an admission that nobody used ended by itself: True",
    ],
    "06_uploads": ["each upload is in a file: True", "120000 lines, each once: True"],
    "07_sqs": [
        "the receiver was killed: True, the trainer: True; came again: True",
        "100 messages, each once: True",
    ],
}

NEEDED = {"07_sqs": ("boto3", "moto.server")}
"""Packages of the examples that need others than most."""


def test_every_example_is_checked() -> None:
    assert [path.stem for path in EXAMPLES] == list(PRINTED)


def marked(path: Path) -> Any:
    return pytest.param(path, marks=pytest.mark.remote if path.stem in NEEDED else pytest.mark.web, id=path.stem)


@pytest.mark.parametrize("path", [*map(marked, EXAMPLES)])
def test_it_prints_what_it_promises(path: Path, tmp_path: Path) -> None:
    for package in NEEDED.get(path.stem, ("aiohttp", "fastapi", "httpx", "uvicorn")):
        pytest.importorskip(package)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", "FOLDER": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, env=environment, timeout=170, check=False
    )
    assert (done.returncode, said(done.stderr)) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == len(PRINTED[path.stem])
    for line, pattern in zip(lines, PRINTED[path.stem], strict=True):
        assert re.fullmatch(pattern, line)
