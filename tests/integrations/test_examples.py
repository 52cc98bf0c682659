"""Every example of a training loop runs, is stopped, and goes on as if it had not been."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integrations

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples" / "training").glob("*.py"))

PRINTED = {
    "01_pytorch_async": [
        "batches of each process: [7, 14, 18]",
        "the same batches and losses as in one run: True",
    ],
    "02_pytorch": ["batches of each run: [5, 20, 14]", "the same losses as in one run: True"],
    "03_lightning": [
        "batches before the stop: 20",
        "batches in all: 39",
        "the same batches as in one run: True",
    ],
    "04_hugging_face": [
        "batches before the stop: 20",
        "batches in all: 39",
        "the same batches as in one run: True",
    ],
    "05_jax": ["batches of each run: [5, 20, 14]", "the same losses as in one run: True"],
    "06_distributed": [
        "batches of each run: [[5, 9, 7], [5, 9, 7]]",
        "the same batches and losses as in one run: [True, True]",
        "elements that both had in the first epoch: 0",
    ],
    "07_language_model": ["tokens in all documents: 7576", "tokens trained on: 7576"],
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_goes_on_as_if_it_had_not_been_stopped(path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, env=environment, timeout=170, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == PRINTED[path.stem]
