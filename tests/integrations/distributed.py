"""Programs that run in several processes that know each other, by PyTorch's launcher."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ("ENVIRONMENT", "PROGRAMS", "run_processes")

PROGRAMS = Path(__file__).parent / "programs"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(PROGRAMS.parents[2])}


def run_processes(count: int, name: str, *arguments: str) -> None:
    """Run a program in so many processes; they must not fail."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *(f"--nproc_per_node={count}", PROGRAMS / name, *arguments),
        ],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
