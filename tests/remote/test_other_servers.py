"""Reading from real servers of other kinds: Google's storage as moto has it, and FTP by fsspec."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import asyncdata as ad
from tests.remote.conftest import answers, free_ports

pytestmark = pytest.mark.remote

FTP = """
import sys
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer
users = DummyAuthorizer()
users.add_user("reader", "secret-word", sys.argv[2], perm="elr")
class Handler(FTPHandler):
    authorizer = users
FTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def started(command: list[str], port: int, ready: object) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not ready(port):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.1)
    return process


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    pytest.importorskip("moto.server")
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = started(command, port, answers)
    yield f"http://127.0.0.1:{port}"
    process.kill()
    process.wait()


def test_google_storage(moto: str) -> None:
    boto3 = pytest.importorskip("boto3")
    client = boto3.client(
        "s3", endpoint_url=moto, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    client.create_bucket(Bucket="bucket")
    for number in range(3):
        client.put_object(Bucket="bucket", Key=f"d/{number}.txt", Body=b"%d\n" % number * 1000)
    options = {"base_url": moto, "bearer_token": "x"}
    names = ad.Dataset.list_files("gs://bucket/d/*.txt", shuffle=False, storage_options=options)
    assert list(names) == [f"gs://bucket/d/{number}.txt" for number in range(3)]

    def build() -> ad.Dataset[bytes]:
        return ad.TextLineDataset(names, storage_options=options)

    with build().iterate() as lines:
        found = [next(lines) for _ in range(1500)]
        state = lines.state_dict()
    assert found + list(build().iterate(state=state)) == [b"%d" % number for number in range(3) for _ in range(1000)]
    with pytest.raises(FileNotFoundError):
        list(ad.TextLineDataset("gs://bucket/missing", storage_options=options))


def test_ftp(tmp_path: Path) -> None:
    pytest.importorskip("pyftpdlib")
    (tmp_path / "a.txt").write_bytes(b"one\n" * 500_000)
    (tmp_path / "b.txt").write_bytes(b"two\n")
    (port,) = free_ports(1)
    process = started([sys.executable, "-c", FTP, str(port), str(tmp_path)], port, accepts)
    try:
        options = {"username": "reader", "password": "secret-word", "port": port}
        names = ad.Dataset.list_files("ftp://127.0.0.1/*.txt", shuffle=False, storage_options=options)
        assert list(names) == ["ftp://127.0.0.1/a.txt", "ftp://127.0.0.1/b.txt"]
        ds = ad.TextLineDataset(names, storage_options=options)
        with ds.iterate() as lines:
            found = [next(lines) for _ in range(400_000)]
            state = lines.state_dict()
        found += ds.iterate(state=state)
        assert found == [b"one"] * 500_000 + [b"two"]
        with pytest.raises(FileNotFoundError):
            list(ad.TextLineDataset("ftp://127.0.0.1/missing.txt", storage_options=options))
    finally:
        process.kill()
        process.wait()
