"""`asyncdata ingest` writes what is posted into shards, each item into one, also where it is killed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.__main__ import main
from asyncdata.cli.ingest import bearer
from asyncdata.cli.shards import Shards

JSON = {"Content-Type": "application/json"}


@contextmanager
def server(
    folder: Path, *arguments: str, end: signal.Signals = signal.SIGINT, **environment: str
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the command, and end it by a signal unless it was killed."""
    program = subprocess.Popen(
        [sys.executable, "-m", "asyncdata", "ingest", "--to", str(folder), "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment, "PYTHONPATH": os.getcwd()},
    )
    with program:
        assert program.stderr is not None
        url = ""
        try:
            while not url:
                line = program.stderr.readline()
                assert line, "the server did not start"
                url = "".join(re.findall(r"http://[\d.]+:\d+", line))
            yield url, program
            if program.poll() is None:
                program.send_signal(end)
            program.stderr.read()
        finally:
            program.kill()


@pytest.mark.web
def test_what_is_posted_is_in_one_shard_though_it_is_killed(tmp_path: Path) -> None:
    httpx = pytest.importorskip("httpx")
    with httpx.Client(headers=JSON, timeout=60) as client:
        for start in (0, 10):
            with server(tmp_path, "--shard-items", "4") as (url, program):
                for number in range(start, start + 10):
                    assert client.post(f"{url}/ingest", json={"x": number}).json() == {"accepted": 1}
                if not start:
                    program.kill()
    shards = sorted(map(str, tmp_path.glob("*.jsonl")))
    assert list(ad.JsonLinesDataset(shards)) == [{"x": number} for number in range(20)]
    assert len(shards) >= 5


@pytest.mark.web
def test_others_need_the_token(tmp_path: Path) -> None:
    httpx = pytest.importorskip("httpx")
    with server(tmp_path, "--format", "tfrecord", end=signal.SIGTERM, ASYNCDATA_TOKEN="secret") as (url, _):
        for header, status in (("Bearer secret", 200), ("Bearer other", 401)):
            headers = {"Authorization": header, "Content-Type": "application/octet-stream"}
            assert httpx.post(f"{url}/ingest", content=b"\xff", headers=headers, timeout=60).status_code == status
    assert list(ad.TFRecordDataset(sorted(map(str, tmp_path.glob("*.tfrecord"))))) == [b"\xff"]


@pytest.mark.parametrize("token", ["", " ", "\t", "token\n", " token", "to\nken", "to\x7fken"])
def test_a_token_that_admits_everybody_or_nobody_is_refused(
    token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ASYNCDATA_TOKEN", token)
    assert main(["ingest", "--to", str(tmp_path), "--host", "0.0.0.0"]) == 2
    assert "ASYNCDATA_TOKEN" in capsys.readouterr().err


@pytest.mark.parametrize("token", ["plain", "schl\xfcssel", "\u30c8\u30fc\u30af\u30f3"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_token_is_admitted_as_clients_encode_it(token: str, encoding: str) -> None:
    admits = bearer(token)
    sent = token.encode(encoding, "replace").decode("latin-1")  # as a server gives the bytes of headers
    assert admits({"authorization": f"Bearer {sent}"}) == (encoding == "utf-8" or token.isascii() or "\xfc" in token)
    assert admits({"authorization": f"bearer {token.encode().decode('latin-1')}"})
    for other in (f"Basic {sent}", f"Bearer {sent}x", "Bearer ", "Bearer", "", sent):
        assert not admits({"authorization": other})
    assert not admits({})


@pytest.mark.web
def test_what_no_shard_could_hold_is_refused(tmp_path: Path) -> None:
    httpx, msgpack = pytest.importorskip("httpx"), pytest.importorskip("msgspec.msgpack")
    headers = {"Content-Type": "application/msgpack"}
    with server(tmp_path) as (url, _), httpx.Client(headers=headers, timeout=60) as client:
        for item in (msgpack.Ext(5, b"x"), {"x": float("nan")}, {(1, 2): 3}):
            reply = client.post(f"{url}/ingest", content=msgpack.encode([0, item]))
            assert (reply.status_code, reply.json()["accepted"]) == (400, 0), reply.text
        reply = client.post(f"{url}/ingest", content=msgpack.encode([1, b"\xff", 1 << 63]))
        assert reply.json() == {"accepted": 3}
    assert list(ad.JsonLinesDataset(sorted(map(str, tmp_path.glob("*.jsonl"))))) == [1, "/w==", 1 << 63]


@pytest.mark.web
def test_shards_go_on_where_one_was_killed_between_the_shard_and_its_note(tmp_path: Path) -> None:
    pytest.importorskip("msgspec")
    shards = Shards(str(tmp_path), "jsonl", 3, 60)
    with ad.DurableChannel(shards.spool):
        pass
    shards.name = "000000-20200101-000000.jsonl"
    shards.write_progress()
    (tmp_path / shards.name).write_text("half of it")
    shards = Shards(str(tmp_path), "jsonl", 3, 60)
    send(shards.spool, 7)
    with shards.batches(follow=False).iterate() as batches:
        shards.write(batches)
    assert shards.number == 3
    assert (tmp_path / "000000-20200101-000000.jsonl").read_text() == "0\n1\n2\n"
    assert sorted(ad.JsonLinesDataset([*map(str, tmp_path.glob("*.jsonl"))])) == list(range(7))
    again = Shards(str(tmp_path), "jsonl", 3, 60)
    assert (again.number, again.state) == (3, shards.state)
    with pytest.raises(ad.PlanError, match="shards of jsonl"):
        Shards(str(tmp_path), "tfrecord", 3, 60)


def send(path: Path, count: int) -> None:
    async def body() -> None:
        async with ad.DurableChannel(path) as channel:
            for number in range(count):
                await channel.send(b"%d" % number, content_type="application/json")

    asyncio.run(body())


def test_who_lets_others_in_needs_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[Any]
) -> None:
    monkeypatch.delenv("ASYNCDATA_TOKEN", raising=False)
    assert main(["ingest", "--to", str(tmp_path / "new"), "--host", "0.0.0.0"]) == 2
    assert "ASYNCDATA_TOKEN" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.web
@pytest.mark.parametrize(("url", "message"), [("s3://bucket/x", "--spool"), ("https://host/x", "can be written to")])
def test_a_url_needs_a_spool_and_can_be_written_to(url: str, message: str, capsys: pytest.CaptureFixture[Any]) -> None:
    pytest.importorskip("obstore")
    pytest.importorskip("uvicorn")
    assert main(["ingest", "--to", url, "--port", "0"]) == 2
    assert message in capsys.readouterr().err
