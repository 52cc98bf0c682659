"""What is posted to a real server comes out of the pipeline, and what is refused says why."""

from __future__ import annotations

import asyncio
import json
import random
import re
import select
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import asyncdata as ad
from asyncdata.web import ingest_app

pytestmark = [pytest.mark.web, pytest.mark.usefixtures("nothing_left")]

httpx = pytest.importorskip("httpx")
msgspec = pytest.importorskip("msgspec")
pytest.importorskip("httptools")
pytest.importorskip("uvicorn")

from tests.web.serving import served  # noqa: E402

NDJSON = {"Content-Type": "application/x-ndjson"}
JSON = {"Content-Type": "application/json"}
BYTES = {"Content-Type": "application/octet-stream"}

PARSERS = cycle(["h11", "httptools"])
"""Of HTTP: each server of a module has the other one."""


@pytest.fixture(params=["Channel", "DurableChannel"])
def channel(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return ad.Channel() if request.param == "Channel" else ad.DurableChannel(tmp_path / "spool")


@contextmanager
def client_of(app: Any, **how: Any) -> Iterator[Any]:
    with served(app, http=next(PARSERS), **how) as url, httpx.Client(base_url=url, timeout=120) as client:
        yield client


def stored(channel: Any, **how: Any) -> list[Any]:
    """What a channel that was closed holds."""
    if isinstance(channel, ad.DurableChannel):
        return list(ad.Dataset.from_channel(channel.path, follow=False, **how))
    return list(ad.Dataset.from_channel(channel))


def lines(items: Any) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def test_ndjson_into_batches() -> None:
    channel = ad.Channel()
    batches = ad.Dataset.from_channel(channel).batch(64)
    with ThreadPoolExecutor(1) as pool, client_of(ingest_app(channel)) as client:
        training = pool.submit(list, batches)
        for start in range(0, 1000, 100):
            reply = client.post("/ingest", content=lines(range(start, start + 100)), headers=NDJSON)
            assert (reply.status_code, reply.json()) == (200, {"accepted": 100})
    assert [x for batch in training.result() for x in batch] == list(range(1000))


def test_an_uploaded_file_is_a_body(channel: Any) -> None:
    with client_of(ingest_app(channel, max_item_bytes=9)) as client:

        def upload(*files: tuple[str, bytes, str], **more: Any) -> Any:
            reply = client.post("/ingest", files=[("file", file) for file in files], **more)
            return reply.status_code, reply.json().get("error", reply.json()["accepted"])

        assert upload(("a.jsonl", b"1\r\n2\n", "application/octet-stream")) == (200, 2)
        for _ in range(2):
            assert upload(("A.JSON", b"[3]", ""), headers={"Idempotency-Key": "a"}) == (200, 1)
        assert upload(("b", b"4\n", "application/x-ndjson")) == (200, 1)
        assert upload(("empty.jsonl", b"", "")) == (200, 0)
        assert upload(("c.jsonl", b"0\n{", ""))[0] == 400
        assert upload(("c.jsonl", b"1234567890", ""))[0] == 413
        assert "text/plain" in upload(("c.txt", b"1", "text/plain"))[1]
        assert "one file" in upload(("c.json", b"1", ""), ("d.json", b"2", ""))[1]
        assert "one file" in client.post("/ingest", files={"x": (None, "1")}).json()["error"]
        for kind, body in (("; boundary=b", b"--b\r\n\r\n1"), ("; boundary=b", b"1"), ("", b"--\r\n\r\n1")):
            headers = {"Content-Type": f"multipart/form-data{kind}"}
            assert client.post("/ingest", content=body, headers=headers).status_code == 400
    assert stored(channel) == [1, 2, 3, 4]


def test_a_trainer_reads_by_its_path_what_is_on_the_disk_when_it_is_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    with client_of(ingest_app(ad.DurableChannel(path))) as client, ad.Dataset.from_channel(path).iterate() as items:
        for number in range(5):
            assert client.post("/ingest", content=lines([number]), headers=NDJSON).json() == {"accepted": 1}
            assert next(items) == number


def test_each_kind_of_body(channel: Any) -> None:
    with client_of(ingest_app(channel)) as client:

        def post(kind: str, body: bytes) -> int:
            reply = client.post("/ingest", content=body, headers={"Content-Type": kind})
            assert reply.status_code == 200, reply.text
            return reply.json()["accepted"]

        assert post("application/json; charset=utf-8", b'[{"a": 1}, 2]') == 2
        assert post("application/json", b'{"a": 3}') == 1
        assert post("application/x-ndjson", b"4\n\n5\r\n6") == 3
        assert post("application/jsonl", b"") == 0
        assert post("application/msgpack", msgspec.msgpack.encode([7, b"8"])) == 2
        assert post("application/octet-stream", b"\x00raw") == 1
    assert stored(channel) == [{"a": 1}, 2, {"a": 3}, 4, 5, 6, 7, b"8", b"\x00raw"]


def test_decode_makes_items_of_their_bytes(channel: Any, caplog: pytest.LogCaptureFixture) -> None:
    with client_of(ingest_app(channel, decode=int)) as client:
        assert client.post("/ingest", content=b"1\n2\n", headers=NDJSON).json() == {"accepted": 2}
        assert client.post("/ingest", content=b"3", headers=BYTES).json() == {"accepted": 1}
        reply = client.post("/ingest", content=b"4\n5\nsix\n7\n", headers=NDJSON)
        assert (reply.status_code, reply.json()["line"], reply.json()["accepted"]) == (400, 3, 0)
        assert reply.json()["error"] == "line 3: the server's decode= cannot decode it"  # the reason is the server's
    assert "line 3: ValueError: invalid literal for int()" in caplog.text
    assert stored(channel, decode=int) == [1, 2, 3]


REFUSED: list[tuple[dict[str, str], bytes, int, int | None, str]] = [
    (NDJSON, lines(range(50)) + b'{"a": }\n' + lines(range(50)), 400, 51, "line 51: .* at byte 6 of the line"),
    (NDJSON, b"1\n" + b"[" * 100_000 + b"\n", 400, 2, "line 2: "),
    (NDJSON, b'"\xff"\n', 400, 1, "line 1: "),
    (NDJSON, b'{"a": 1}\n{"a":', 400, 2, "line 2: "),  # without a newline at the end
    (NDJSON, b"NaN", 400, 1, "line 1: "),
    (NDJSON, b"\xef\xbb\xbf1\n2\n", 400, 1, "line 1: .* byte order mark: send UTF-8 without it"),
    (JSON, "[1]".encode("utf-16"), 400, 1, "byte order mark"),
    (JSON, b'[1,\n2,\n"three]', 400, None, "truncated"),
    (JSON, b"[1,\n2,\nx]", 400, 3, "malformed"),
    (JSON, b"[" * 100_000, 400, None, "recursion"),
    (JSON, b"", 400, None, "truncated"),
    ({"Content-Type": "application/msgpack"}, b"\x93\x01", 400, None, "truncated"),
    ({"Content-Type": "text/plain"}, b"1", 415, None, "text/plain"),
    ({}, b"1", 415, None, "got none"),
    ({**BYTES, "Content-Encoding": "compress"}, b"1", 415, None, "Content-Encoding"),
    (BYTES, bytes(200_000), 413, None, "the item has more than 150000 bytes"),
    (NDJSON, b"1\n" + b"7" * 200_000 + b"\n", 413, 2, "line 2 has more than 150000 bytes"),
    (JSON, b" " * 300_001, 413, None, "more than 300000 bytes"),
    ({**BYTES, "Idempotency-Key": '""'}, b"1", 400, None, "Idempotency-Key"),
    ({**BYTES, "Idempotency-Key": "k" * 1025}, b"1", 400, None, "Idempotency-Key"),
]


@pytest.mark.parametrize(
    "how",
    [
        {"decode": 5},
        {"authenticate": "secret"},
        {"max_body_bytes": 0},
        {"max_item_bytes": 1.5},
        {"body_seconds": 0},
        {"receiving_bytes": -1},
        {"consumer": print},
    ],
    ids=str,
)
def test_wrong_arguments(how: dict[str, Any]) -> None:
    with pytest.raises(ad.PlanError, match=next(iter(how))):
        ingest_app(ad.Channel(), **how)


def test_what_cannot_be_taken_says_why(channel: Any) -> None:
    with client_of(ingest_app(channel, max_body_bytes=300_000, max_item_bytes=150_000)) as client:
        for headers, body, status, line, what in REFUSED:
            for content in (body, iter([body[:1], body[1:]])):  # with its length, and in chunks
                reply = client.post("/ingest", content=content, headers=headers)
                told = reply.json()
                assert (reply.status_code, told["accepted"], told.get("line")) == (status, 0, line), told
                assert re.search(what, told["error"], re.IGNORECASE), told
        assert client.post("/ingest", content=b"1", headers=BYTES).status_code == 200
        assert client.get("/ingest").status_code == 405
    assert stored(channel) == [b"1"]


def test_an_idempotency_key_is_taken_once(channel: Any) -> None:
    with client_of(ingest_app(channel)) as client:

        def post(body: bytes, key: str) -> Any:
            return client.post("/ingest", content=body, headers={**NDJSON, "Idempotency-Key": key}).json()

        assert post(b"1\n2\n", '"a"') == {"accepted": 2}
        assert post(b"1\n2\n", "a") == {"accepted": 2, "duplicate": True}
        assert post(b"3\n", "b") == {"accepted": 1}
    assert stored(channel) == [1, 2, 3]


def test_versions_tell_stale_items(channel: Any) -> None:
    with client_of(ingest_app(channel)) as client:
        for version in (1, 2, -3):
            assert client.post(f"/ingest?version={version}", content=b"%d" % version, headers=BYTES).is_success
        for wrong in ("", "two", "9" * 30):
            assert client.post(f"/ingest?version={wrong}", content=b"x", headers=BYTES).status_code == 400
    ds = ad.Dataset.from_channel(channel, min_version=2, **({} if isinstance(channel, ad.Channel) else FINITE))
    assert list(ds) == [b"2"]


FINITE: dict[str, Any] = {"follow": False}


def test_a_closed_channel_is_unavailable(channel: Any) -> None:
    with client_of(ingest_app(channel)) as client:
        channel.close()
        reply = client.post("/ingest", content=b"1", headers=BYTES)
        assert (reply.status_code, reply.headers["Retry-After"]) == (503, "1")
        assert "closed" in reply.json()["error"]


def test_what_would_never_fit_is_too_large(tmp_path: Path) -> None:
    for small in (ad.Channel(max_items=2), ad.DurableChannel(tmp_path, max_bytes=200)):
        with client_of(ingest_app(small)) as client:
            assert client.post("/ingest", content=lines(range(100)), headers=NDJSON).status_code == 413


def raw(client: Any) -> socket.socket:
    """A connection on which anything can be sent."""
    url = urlsplit(str(client.base_url))
    return socket.create_connection((url.hostname, url.port), timeout=120)


HEAD = b"POST /ingest HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"


def answer(connection: socket.socket) -> tuple[int, Any]:
    """The status and the body of a reply after which the connection is closed."""
    told = b""
    while part := connection.recv(1 << 16):
        told += part
    head, _, body = told.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def test_an_endless_body_ends_at_the_limit(channel: Any) -> None:
    with client_of(ingest_app(channel, max_body_bytes=1 << 20)) as client, raw(client) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"%x\r\n%s\r\n" % (60_000, b'"12345678"\n' * 5454 + b"123456")
        sent = 0
        while sent < 1000 << 20:
            try:
                connection.sendall(chunk)
            except OSError:
                break
            sent += len(chunk)
        assert sent < 100 << 20
        assert client.post("/ingest", content=b"1", headers=BYTES).status_code == 200
    assert stored(channel) == [b"1"]


def test_who_sends_too_much_reads_why(channel: Any) -> None:
    with client_of(ingest_app(channel, max_body_bytes=1 << 20)) as client:
        for content in (bytes(8 << 20), iter([bytes(1 << 20)] * 8)):
            assert client.post("/ingest", content=content, headers=BYTES).status_code == 413
    assert stored(channel) == []


def test_a_body_that_takes_too_long_is_given_up(channel: Any) -> None:
    with client_of(ingest_app(channel, body_seconds=0.2)) as client, raw(client) as connection:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n1\n")
        status, told = answer(connection)
        assert (status, told["accepted"]) == (408, 0)
        assert "0.2 s" in told["error"]
    assert stored(channel) == []


def test_a_client_that_leaves_in_the_middle_has_sent_nothing(channel: Any) -> None:
    with client_of(ingest_app(channel)) as client:
        for ending in (b"Content-Length: 100\r\n\r\n1\n2\n", b"Transfer-Encoding: chunked\r\n\r\n4\r\n1\n2\n\r\n"):
            with raw(client) as connection:
                connection.sendall(HEAD + ending)
        assert client.post("/ingest", content=b"1", headers=BYTES).status_code == 200
    assert stored(channel) == [b"1"]


def test_bodies_that_are_received_at_once_are_bounded() -> None:
    channel = ad.Channel()
    app = ingest_app(channel, max_body_bytes=1000, receiving_bytes=1500)
    with client_of(app) as client, raw(client) as first, raw(client) as second:
        first.sendall(HEAD + b"Content-Length: 1000\r\n\r\n" + b"1\n" * 450)
        second.sendall(HEAD + b"Content-Length: 1000\r\n\r\n" + b"2\n" * 450)
        (refused, *_), _, _ = select.select([first, second], [], [], 120)
        assert answer(refused)[0] == 503
        other = second if refused is first else first
        other.sendall(b"3\n" * 50)
        assert b" 200 " in other.recv(1000)
    assert len(stored(channel)) == 500


def train(channel: Any) -> list[int]:
    """Take items, and let go of what was taken, until all are there."""
    path = channel.path if isinstance(channel, ad.DurableChannel) else None
    found: list[int] = []
    with ad.Dataset.from_channel(channel if path is None else path).prefetch(1).iterate() as items:
        while len(found) < 400:
            found.append(next(items))
            if path is not None:
                ad.web.trim(path, items.state_dict())
    return found


async def send_all(url: str, refused: threading.Event) -> None:
    """Send numbers, five at a time, in four tasks, again where they are refused."""

    async def send(start: int) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=120) as client:
            for number in range(start, start + 100, 5):
                told = {**NDJSON, "Idempotency-Key": str(number)}
                while True:
                    reply = await client.post("/ingest", content=lines(range(number, number + 5)), headers=told)
                    if reply.status_code == 200:
                        break
                    assert (reply.status_code, reply.headers["Retry-After"]) == (429, "1"), reply.text
                    refused.set()

    async with asyncio.TaskGroup() as group:
        for start in range(0, 400, 100):
            group.create_task(send(start))


def test_clients_of_a_slow_consumer_lose_nothing_when_they_retry(tmp_path: Path) -> None:
    for channel in (ad.Channel(max_items=20), ad.DurableChannel(tmp_path, max_bytes=4000, segment_bytes=100)):
        refused = threading.Event()
        with client_of(ingest_app(channel)) as client, ThreadPoolExecutor(2) as pool:
            sending = pool.submit(asyncio.run, send_all(str(client.base_url), refused))
            assert refused.wait(120)
            assert sorted(train(channel)) == list(range(400))
            sending.result()


def test_random_bytes_are_never_a_server_error(channel: Any) -> None:
    rng = random.Random(1)
    kinds = ["application/json", "application/x-ndjson", "application/msgpack", "application/octet-stream"]
    with client_of(ingest_app(channel, max_body_bytes=4000)) as client:
        for _ in range(100):
            body = bytes(rng.choices(b'[]{}",:0123456789eE+-.\\ntf\n\r \x80\xc3\xff\x91\x81', k=rng.randrange(60)))
            reply = client.post("/ingest", content=body, headers={"Content-Type": rng.choice(kinds)})
            assert reply.status_code in (200, 400), (reply.status_code, body)
            assert ("error" in reply.json()) == (reply.status_code == 400)
