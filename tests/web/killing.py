"""Programs that are killed while they are at work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

__all__ = ("PROGRAMS", "begun", "killed")

PROGRAMS = Path(__file__).parent / "programs"


def begun(*arguments: object, **how: object) -> subprocess.Popen[bytes]:
    """Start a program."""
    command = [sys.executable, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    return subprocess.Popen(command, env=environment, **how)  # type: ignore[call-overload,no-any-return]


def killed(*arguments: object, kills: int, more: int = 3) -> int:
    """Run a program again and again, and kill it after 5 lines, `more` each time; let the last one end."""
    for number in range(kills + 1):
        with begun(*arguments, stdout=subprocess.PIPE) as program:
            assert program.stdout is not None
            for _ in range(5 + more * number if number < kills else 1 << 62):
                if not program.stdout.readline():
                    break
            if number < kills:
                program.send_signal(signal.SIGKILL)
            program.stdout.read()
    return program.returncode
