"""Trainers whose process is killed, and that go on from their last checkpoint in another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import asyncdata as ad

pytestmark = pytest.mark.integrations

PROGRAM = Path(__file__).parent / "programs" / "killed_training.py"


def trained(trainer: str, folder: Path, most: int) -> list[list[int]]:
    """Return the batches that a process trains on, which is killed (SIGKILL) after so many."""
    environment = {**os.environ, "PYTHONPATH": str(PROGRAM.parents[3]), "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, PROGRAM, trainer, folder]
    with (
        (folder / "errors.txt").open("w") as errors,
        subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        found: list[list[int]] = []
        for line in process.stdout:
            if line.startswith("["):  # and not what the trainer prints
                found.append(json.loads(line))
                if len(found) == most:
                    process.kill()
                    break
                process.stdin.write("\n")
                process.stdin.flush()
    assert len(found) == most, (folder / "errors.txt").read_text()
    return found


@pytest.mark.parametrize("trainer", ["plain", "drop_in", "lightning", "hugging_face"])
def test_a_killed_training_goes_on_at_the_last_checkpoint(trainer: str, tmp_path: Path) -> None:
    ds = ad.Dataset.range(14).shuffle(seed=1).batch(2)
    expected = [batch.tolist() for _ in range(2) for batch in ds]
    if trainer == "drop_in":
        torch = pytest.importorskip("torch")
        torch.manual_seed(1)
        loader = torch.utils.data.DataLoader(range(14), 2, shuffle=True)
        expected = [batch.tolist() for _ in range(2) for batch in loader]
    seen = trained(trainer, tmp_path, 9)  # of seven in an epoch; the ninth is not saved
    seen[8:] = trained(trainer, tmp_path, len(expected) - 8)
    assert seen == expected
