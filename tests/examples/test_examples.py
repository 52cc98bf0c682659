"""Every example runs and prints what it promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import said

__all__ = ()

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

PRINTED = {
    "01_guide": [
        r"naive +\d+\.\d+ s",
        r"prefetch +\d+\.\d+ s",
        r"sequential interleave +\d+\.\d+ s",
        r"parallel interleave +\d+\.\d+ s",
        r"sequential map +\d+\.\d+ s",
        r"parallel map +\d+\.\d+ s",
        r"cache, 5 epochs +\d+\.\d+ s",
        r"scalar map +\d+\.\d+ s for 80 batches up to 10000",
        r"vectorized map +\d+\.\d+ s for 80 batches up to 10000",
    ],
    "02_records": [
        *[r"pixels \(32, 4, 4\) float32 first name b'picture \d+'"] * 3,
        r"pixels \(4, 4, 4\) float32 first name b'picture \d+'",
        r"every record once: True",
    ],
    "03_async": [
        r"an epoch: last loss 189\.5, up to 20 fetches at once",
        r"the time is up after some steps: True",
        r"tasks left behind: 0",
    ],
    "04_errors": [
        "1",
        "2",
        r"ValueError: invalid literal for int\(\) with base 10: 'three'",
        r" +in map\(decode\) at 04_errors\.py:\d+, element 2",
        "4",
        r"ValueError: invalid literal for int\(\) with base 10: 'five'",
        r" +in map\(decode\) at 04_errors\.py:\d+, element 4",
        "6",
    ],
    "05_resume": [
        r"batches of each process: \[7, 6, 7\]",
        r"as if nothing had happened: True",
        r"plan +range\(1000\) → shuffle\(\) → map\(augment\) → batch\(50\)",
        r"epoch +0",
        r"delivered +20",
        r"position +\[\[1000, 1000\]\]",
        r"size +\d+ bytes",
    ],
    "06_language_model": [
        r"paragraphs \d+ tokens \d+",
        r"{'overlong': 'split'} rows \d+ filled (9\d\.\d|100\.0)% True",
        r"{'strategy': 'concat_then_split'} rows \d+ filled (9\d\.\d|100\.0)% True",
        r"one row for each paragraph would be filled \d\d\.\d%",
        r"goes on in the middle of the rows: True",
    ],
    "07_processes": [
        r"element 7: it ended the worker process that worked on it 2 times, with exit code 3 .*element 7\)",
        r"11 elements, in order, from \d other processes",
        r"sum 200010000",
        r"AUTOTUNE: a call takes .*",
    ],
    "08_recorder": [
        r"the loss is 4\d{4,} in step \d+, whose batch has",
        *[r"  [0-3]\.tfrecord +\d+ +-?\d+\.\d\d #*"] * 20,
        r"the worst is 2\.tfrecord, record 137",
        r"from step \d+ on without it the loss is at most [0-9]\.\d+",
        r"epoch 0: 50 steps, 999 records; \d+ steps were repeated after restarts: complete, each once",
    ],
}


def test_every_example_is_checked() -> None:
    assert [path.stem for path in EXAMPLES] == list(PRINTED)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.slow
def test_example_prints_what_it_promises(path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, env=environment, timeout=170, check=False
    )
    assert said(done.stderr) == ""
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) == len(PRINTED[path.stem])
    for line, pattern in zip(lines, PRINTED[path.stem], strict=True):
        assert re.fullmatch(pattern, line)
