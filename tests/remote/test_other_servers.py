"""Reading from real servers of other kinds: Google's storage as moto has it, FTP and SFTP by fsspec."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from tests.ports import reserved_ports
from tests.remote.conftest import accepts, answers, started

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


SFTP = """
import asyncio, asyncssh, sys
class Server(asyncssh.SSHServer):
    def begin_auth(self, username):
        return True
    def password_auth_supported(self):
        return True
    def validate_password(self, username, password):
        return (username, password) == ("reader", "secret-word")
def files(channel):
    return asyncssh.SFTPServer(channel, chroot=sys.argv[2].encode())
async def main():
    key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.create_server(
        Server, "127.0.0.1", int(sys.argv[1]), server_host_keys=[key], sftp_factory=files
    )
    await server.wait_closed()
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    pytest.importorskip("moto.server")
    with reserved_ports(1) as (port,):
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        with started(command, port, answers):
            yield f"http://127.0.0.1:{port}"


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
    with pytest.raises(OSError, match="an empty part"):
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


def check_lines(root: str, options: dict[str, Any], folder: Path) -> None:
    """Files of lines are listed, read, gone on with, and missing."""
    (folder / "a.txt").write_bytes(b"one\n" * 500_000)
    (folder / "b.txt").write_bytes(b"two\n")
    names = ad.Dataset.list_files(f"{root}/*.txt", shuffle=False, storage_options=options)
    assert list(names) == [f"{root}/a.txt", f"{root}/b.txt"]
    ds = ad.TextLineDataset(names, storage_options=options)
    with ds.iterate() as lines:
        found = [next(lines) for _ in range(400_000)]
        state = json.loads(json.dumps(lines.state_dict()))
    found += ds.iterate(state=state)
    assert found == [b"one"] * 500_000 + [b"two"]
    with pytest.raises(FileNotFoundError):
        list(ad.TextLineDataset(f"{root}/missing.txt", storage_options=options))


def check_one_connection(root: str, options: dict[str, Any], folder: Path) -> None:
    """Threads take turns: a connection answers one request at a time."""
    for name in "pqrs":
        (folder / f"{name}.log").write_bytes((name.encode() * 999 + b"\n") * 2500)
    names = ad.Dataset.list_files(f"{root}/*.log", shuffle=False, storage_options=options)
    read = partial(ad.TextLineDataset, storage_options=options)
    lines = list(names.interleave(read, cycle_length=4, num_parallel_calls=4))
    assert sorted(lines) == [name.encode() * 999 for name in "pqrs" for _ in range(2500)]


def check_password(root: str) -> None:
    ds = ad.TextLineDataset(ad.Dataset.list_files(f"{root}/*.txt", shuffle=False))
    with ds.iterate() as lines:
        next(lines)
        state = lines.state_dict()
    with pytest.raises(FileNotFoundError, match="no such file: .*missing") as caught:
        list(ad.Dataset.from_list([f"{root}/missing"]).map(ad.read_file))
    with pytest.raises(FileNotFoundError) as nothing:
        ad.Dataset.list_files(f"{root}/*.missing")
    told = [repr(ds), ds.explain(), json.dumps(state), str(caught.value), *caught.value.__notes__, str(nothing.value)]
    assert not [one for one in told if "secret-word" in one]


def check_server(command: list[str], scheme: str, folder: Path, port: int) -> None:
    options = {"username": "reader", "password": "secret-word", "port": port}
    command, root = [sys.executable, "-c", *command, str(port), str(folder)], f"{scheme}://127.0.0.1"
    with started(command, port, accepts):
        check_lines(root, options, folder)
        check_one_connection(root, options, folder)
        check_password(f"{scheme}://reader:secret-word@127.0.0.1:{port}")
    with started(command, port, accepts):  # the connection has broken since
        assert list(ad.TextLineDataset(f"{root}/b.txt", storage_options=options)) == [b"two"]


def test_ftp(tmp_path: Path) -> None:
    pytest.importorskip("pyftpdlib")
    with reserved_ports(1) as (port,):
        check_server([FTP], "ftp", tmp_path, port)


def test_sftp(tmp_path: Path) -> None:
    pytest.importorskip("asyncssh")
    pytest.importorskip("paramiko")
    with reserved_ports(1) as (port,):
        check_server([SFTP], "sftp", tmp_path, port)
