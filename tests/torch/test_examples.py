"""Each script of `examples/dataloader` prints the same with either import: equal batches, losses and random numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "dataloader").glob("*.py")), ids=lambda path: path.stem)
def test_a_script_prints_the_same_with_either_import(path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    runs = [
        subprocess.Popen([sys.executable, path, *option], stdout=subprocess.PIPE, text=True, env=environment)
        for option in ([], ["--torch"])
    ]
    ours, theirs = [run.communicate(timeout=170)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert ours == theirs
    assert ours.startswith("epoch 0: ")
