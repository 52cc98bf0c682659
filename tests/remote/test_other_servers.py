"""Reading from real servers of other kinds: Google's storage as moto has it, and FTP by fsspec."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def client_of(endpoint: str) -> Any:
    boto3 = pytest.importorskip("boto3")
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )


def test_keys_that_obstore_cannot_ask_for_are_loud(moto: str) -> None:
    client = client_of(moto)
    client.create_bucket(Bucket="odd")
    for key in ("good/", "good/a.txt", "bad/a.txt", "bad//b.txt"):
        client.put_object(Bucket="odd", Key=key, Body=b"")
    options = {"endpoint": moto, "region": "us-east-1", "access_key_id": "a", "secret_access_key": "b"}
    found = ad.Dataset.list_files("s3://odd/good/*", storage_options=options)  # folders that consoles make do no harm
    assert list(found) == ["s3://odd/good/a.txt"]
    for pattern in ("s3://odd/bad/*", "s3://odd/bad//*", "s3://odd/**"):
        with pytest.raises(OSError, match="bad//b.txt"):
            ad.Dataset.list_files(pattern, storage_options=options)
    with pytest.raises(OSError, match=r"bad//b\.txt"):
        list(ad.TextLineDataset("s3://odd/bad//b.txt", storage_options=options))
    with pytest.raises(OSError, match="part that is empty"):
        ad.Dataset.from_tensor_slices([b"x"]).write_tfrecords("s3://odd/new//here", storage_options=options)
    assert client.list_objects_v2(Bucket="odd", Prefix="new")["KeyCount"] == 0


def test_google_storage(moto: str) -> None:
    client = client_of(moto)
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
