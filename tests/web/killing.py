"""Programs that are killed while they are at work."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

__all__ = ("PROGRAMS", "Service", "begun", "killed")

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


class Service:
    """A service on a socket that outlives it: who connects while it is down waits for the next one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"

    def start(self) -> None:
        descriptor = self.socket.fileno()
        self.process = begun(PROGRAMS / "listening_service.py", self.folder, descriptor, pass_fds=[descriptor])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        self.socket.close()
