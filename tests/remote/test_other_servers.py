"""Reading from real servers of other kinds: Google's storage as moto has it, FTP and SFTP by fsspec."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.storage.store_options import CLIENT, RETRY, STORES
from tests.ports import reserved_ports
from tests.remote.conftest import accepts, answers, started
from tests.remote.tables import check_lance, check_zarr

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
    for pattern in ("s3://odd/bad/*", "s3://odd/bad//*", "s3://odd/**", "s3://odd/*/*"):
        with pytest.raises(OSError, match='Path "bad//(b.txt)?" contained empty path segment'):
            ad.Dataset.list_files(pattern, storage_options=options)
    with pytest.raises(OSError, match=r"bad//b\.txt"):
        list(ad.TextLineDataset("s3://odd/bad//b.txt", storage_options=options))
    with pytest.raises(OSError, match="an empty part"):
        ad.Dataset.from_tensor_slices([b"x"]).write_tfrecords("s3://odd/new//here", storage_options=options)
    assert client.list_objects_v2(Bucket="odd", Prefix="new")["KeyCount"] == 0


@pytest.mark.parametrize("bad", ["bad//b.txt", "bad/./b.txt", "bad/../b.txt", "bad/\x7f.txt"])
def test_keys_that_obstore_cannot_parse_do_no_harm_where_they_do_not_match(moto: str, bad: str) -> None:
    client = client_of(moto)
    name = f"beside-{bad.encode().hex()}"
    client.create_bucket(Bucket=name)
    keys = [
        "a.txt",
        "b/a.txt",
        "b/c/d.txt",
        "bad/c.txt",
        "bad/c/part-0.txt",
        "bad/part-0.txt",
        "bad/part-1.txt",
        "c.txt",
    ]
    for key in [*keys, bad]:
        client.put_object(Bucket=name, Key=key, Body=b"1")
    options = {"endpoint": moto, "region": "us-east-1", "access_key_id": "a", "secret_access_key": "b"}
    for pattern, found in [
        ("*.txt", ["a.txt", "c.txt"]),
        ("?/*.txt", ["b/a.txt"]),
        ("[b]/**", ["b/a.txt", "b/c/d.txt"]),
        ("*/c.txt", ["bad/c.txt"]),
        ("b*/c/*", ["b/c/d.txt", "bad/c/part-0.txt"]),
        ("b*/c/**/*.txt", ["b/c/d.txt", "bad/c/part-0.txt"]),
        *([("bad/part-*", ["bad/part-0.txt", "bad/part-1.txt"])] if bad < "bad/part-" else []),  # listed from there on
    ]:
        listed = ad.Dataset.list_files(f"s3://{name}/{pattern}", shuffle=False, storage_options=options)
        assert list(listed) == [f"s3://{name}/{key}" for key in found], pattern
    with pytest.raises(OSError, match="Error parsing Path|contained empty path segment"):
        list(ad.Dataset.list_files(f"s3://{name}/**", storage_options=options))


@pytest.mark.parametrize(
    ("scheme", "options"),
    [("s3", {"region": "us-east-1", "access_key_id": "a", "secret_access_key": "b"}), ("gs", {"bearer_token": "x"})],
)
def test_markers_of_folders_are_no_files(moto: str, scheme: str, options: dict[str, str]) -> None:
    client = client_of(moto)
    name = f"markers{scheme}"
    client.create_bucket(Bucket=name)
    files = ["a/empty.txt", "a/full.txt", "a/in/b.txt", "empty", "z.txt"]
    for key in [*files, "a/", "a/in/", "lone/", "a/lone/"]:
        client.put_object(Bucket=name, Key=key, Body=b"1\n" if key.endswith("full.txt") else b"")
    options = {("base_url" if scheme == "gs" else "endpoint"): moto, **options}

    def listed(pattern: str) -> list[str]:
        found = ad.Dataset.list_files(f"{scheme}://{name}/{pattern}", shuffle=False, storage_options=options)
        return [url.removeprefix(f"{scheme}://{name}/") for url in found]

    assert listed("**") == files
    assert listed("*") == ["empty", "z.txt"]
    assert listed("a/*") == ["a/empty.txt", "a/full.txt"]
    with pytest.raises(FileNotFoundError, match="no file matches"):
        listed("a/in*")
    names = [f"{scheme}://{name}/{path}" for path in listed("a/*")]
    assert list(ad.TextLineDataset(names, storage_options=options)) == [b"1"]


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("s3://b/*", {"allow_http": True}, r"'allow_http' is an option of the connection: .*'client_options'"),
        ("gs://b/*", {"Timeout": "5s"}, "'Timeout' is an option of the connection"),
        ("az://b/*", {"proxy_url": "x", "account_name": "a"}, "'proxy_url' is an option of the connection"),
        (
            "s3://b/*",
            {"acces_key_id": "secret-word"},
            "no option 'acces_key_id'; the options are access_key_id, .*region",
        ),
        ("gs://b/*", {"region": "x"}, "no option 'region'; the options are .*bearer_token"),
        ("az://b/*", {"acount_name": "x"}, "no option 'acount_name'; the options are .*account_name"),
        ("https://host/x.txt", {"region": "x"}, "a web server has no storage_options but 'client_options'"),
        ("s3://b/*", {"client_options": {"alow_http": True}}, "no option 'alow_http' in client_options; .*allow_http"),
        ("s3://b/*", {"client_options": True}, "'client_options' must be a dict of options, got bool"),
        ("s3://b/*", {"retry_config": {"retries": 3}}, "no option 'retries' in retry_config; .*max_retries"),
    ],
)
def test_options_that_are_unknown_are_errors_with_the_known_ones(
    url: str, options: dict[str, Any], message: str
) -> None:
    pytest.importorskip("obstore")
    with pytest.raises(ad.PlanError, match=message) as caught:
        list(ad.TextLineDataset(url, storage_options=options))
    assert "secret-word" not in str(caught.value)
    writable = url.replace("*", "folder")
    if not url.startswith("http"):
        with pytest.raises(ad.PlanError, match=message):
            ad.Dataset.from_tensor_slices([b"x"]).write_tfrecords(writable, storage_options=options)


def test_the_known_options_are_those_of_obstore() -> None:
    folder = Path(pytest.importorskip("obstore").__file__).parent / "_store"
    found: dict[str, list[str]] = {}
    for path in folder.glob("*.pyi"):
        for kind in ast.parse(path.read_text()).body:
            if isinstance(kind, ast.ClassDef):
                fields = [field.target for field in kind.body if isinstance(field, ast.AnnAssign)]
                found[kind.name] = sorted(field.id for field in fields if isinstance(field, ast.Name))
    assert found["ClientConfig"] == sorted(CLIENT)
    assert found["RetryConfig"] == sorted(RETRY)
    stores = {"S3": "S3Config", "GCS": "GCSConfig", "MicrosoftAzure": "AzureConfig"}
    assert {store: found[name] for store, name in stores.items()} == {name: [*STORES[name]] for name in stores}


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


def test_tables_and_arrays_in_google_storage(moto: str, capsys: pytest.CaptureFixture[str]) -> None:
    client_of(moto).create_bucket(Bucket="tables")
    options = {"base_url": moto, "bearer_token": "x"}
    check_lance("gs://tables/in", options, capsys)
    check_zarr("gs://tables/in", options, capsys)


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
