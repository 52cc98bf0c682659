"""Compressed bodies of requests: the items are those of the body before it was compressed, within the same limits."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.formats.compression import zstd_module
from asyncdata.web import ingest_app
from asyncdata.web.content_encoding import accepted_encodings

pytestmark = [pytest.mark.web, pytest.mark.usefixtures("nothing_left")]

httpx = pytest.importorskip("httpx")
msgspec = pytest.importorskip("msgspec")
pytest.importorskip("uvicorn")

from tests.web.serving import served  # noqa: E402
from tests.web.test_guards import post  # noqa: E402

zstd = zstd_module()
PACK: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd.compress}

FORM = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n1\n2\r\n--b--\r\n'
BODIES: list[tuple[str, bytes, list[Any]]] = [
    ("application/json", b'[{"a": 1}, 2]', [{"a": 1}, 2]),
    ("application/x-ndjson", b"".join(b"%d\n" % number for number in range(5000)), list(range(5000))),
    ("application/msgpack", msgspec.msgpack.encode([7, b"8"]), [7, b"8"]),
    ("application/octet-stream", bytes(1000), [bytes(1000)]),
    ("multipart/form-data; boundary=b", FORM, [1, 2]),
    ("application/x-ndjson", b"", []),
]


@pytest.fixture(params=["Channel", "DurableChannel"])
def channel(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return ad.Channel(max_items=100_000) if request.param == "Channel" else ad.DurableChannel(tmp_path / "spool")


@contextmanager
def client_of(app: Any) -> Iterator[Any]:
    with served(app) as url, httpx.Client(base_url=url, timeout=120) as client:
        yield client


def stored(channel: Any) -> list[Any]:
    if isinstance(channel, ad.DurableChannel):
        return list(ad.Dataset.from_channel(channel.path, follow=False))
    return list(ad.Dataset.from_channel(channel))


def sent(client: Any, kind: str, body: Any, encoding: str, **headers: str) -> Any:
    told = {"Content-Type": kind, "Content-Encoding": encoding, **headers}
    return client.post("/ingest", content=body, headers=told)


def test_each_kind_of_body_in_each_encoding(channel: Any) -> None:
    expected: list[Any] = []
    with client_of(ingest_app(channel, max_body_bytes=300_000)) as client:
        for encoding, pack in PACK.items():
            for kind, body, items in BODIES:
                packed = pack(body)
                for content in (packed, iter([packed[:9], packed[9:]])):  # with its length, and in chunks
                    reply = sent(client, kind, content, f"identity, {encoding.upper()}")
                    assert (reply.status_code, reply.json()) == (200, {"accepted": len(items)}), (encoding, kind)
                    expected += items
    assert stored(channel) == expected


def test_a_body_is_the_same_in_another_encoding(channel: Any) -> None:
    with client_of(ingest_app(channel)) as client:
        told = [sent(client, "application/json", pack(b"[1]"), name, **KEY).json() for name, pack in PACK.items()]
    assert told == [{"accepted": 1}, *[{"accepted": 1, "duplicate": True}] * 2]
    assert stored(channel) == [1]


KEY = {"Idempotency-Key": "a"}
LINES = b"".join(b"%d\n" % (number * number) for number in range(3000))


@pytest.mark.parametrize("encoding", PACK)
def test_what_is_damaged_or_cut_short_is_refused_completely(channel: Any, encoding: str) -> None:
    packed = PACK[encoding](LINES)
    damaged = packed[: len(packed) // 2] + bytes(64) + packed[len(packed) // 2 :]
    with client_of(ingest_app(channel)) as client:
        for body in (packed[:-1], packed[:5], damaged, packed + b"more", LINES):
            for content in (body, iter([body[:3], body[3:]])):
                reply = sent(client, "application/octet-stream", content, encoding)
                assert (reply.status_code, reply.json()["accepted"]) == (400, 0), reply.json()
                assert encoding in reply.json()["error"]
        assert sent(client, "application/octet-stream", packed, encoding).json() == {"accepted": 1}
    assert stored(channel) == [LINES]


def test_an_encoding_that_is_not_read_is_told_with_those_that_are() -> None:
    with client_of(ingest_app(ad.Channel())) as client:
        for encoding in ("compress", "gzip, gzip", "gzip, zstd", "gzip;q=1"):
            reply = sent(client, "application/json", gzip.compress(b"1"), encoding)
            assert (reply.status_code, reply.headers["Accept-Encoding"]) == (415, accepted_encodings())
        for kind in ("text/plain", ""):  # then it is the type that is wrong, not the encoding
            reply = sent(client, kind, gzip.compress(b"1"), "gzip")
            assert (reply.status_code, "Accept-Encoding" in reply.headers) == (415, False)


def test_what_a_request_does_not_say_of_its_body_is_told() -> None:
    """Also what is wrong with one that says something else."""
    with client_of(ingest_app(ad.Channel())) as client:
        for kind in ("application/x-ndjson", "application/json"):
            for name in ("gzip", "zstd"):
                reply = client.post("/ingest", content=PACK[name](LINES), headers={"Content-Type": kind})
                assert f"say so by Content-Encoding: {name}" in reply.json()["error"]
        for schema in (None, int):
            with client_of(ingest_app(ad.Channel(), schema=schema)) as typed:
                reply = typed.post("/ingest", content=b"1\n2\n", headers={"Content-Type": "application/json"})
                assert "values on a line each are application/x-ndjson" in reply.json()["error"]
        reply = sent(client, "application/json", b"[1]", "gzip")
        assert "the body with Content-Encoding: gzip: the compressed stream is corrupt" in reply.json()["error"]


def test_without_its_package_an_encoding_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise ad.MissingDependencyError("no zstd")

    monkeypatch.setattr("asyncdata.formats.compression.zstd_module", missing)
    with client_of(ingest_app(ad.Channel())) as client:
        reply = sent(client, "application/json", zstd.compress(b"1"), "zstd")
    assert reply.status_code == 415
    assert "zstd" not in reply.headers["Accept-Encoding"]


MEMBERS = gzip.compress(b"") * 20_000  # nothing, however much of it comes


@pytest.mark.parametrize("encoding", PACK)
def test_a_little_that_becomes_much_ends_at_the_limit(encoding: str) -> None:
    pack = PACK[encoding]
    with client_of(ingest_app(ad.Channel(), max_body_bytes=1 << 16, receiving_bytes=1 << 17)) as client:
        for kind in ("json", "x-ndjson", "octet-stream"):
            for size, status in ((1 << 16, 200), ((1 << 16) + 1, 413), (20 << 20, 413)):
                body = pack(b'"' + b"x" * (size - 2) + b'"')
                reply = sent(client, f"application/{kind}", body, encoding)
                assert (reply.status_code, reply.json()["accepted"]) == (status, int(status == 200))
        reply = sent(client, "application/octet-stream", iter([MEMBERS]), "gzip")
        assert reply.status_code == 413
        assert "asyncdata_ingest_receiving_bytes 0\n" in client.get("/metrics").text


async def test_memory_stays_flat_whatever_a_body_would_become() -> None:
    from asyncdata.web.channel_writers import MemoryWriter
    from asyncdata.web.http import Ingest, Limits

    bombs = {encoding: pack(bytes(64 << 20)) for encoding, pack in PACK.items()}
    ingest = Ingest(MemoryWriter(ad.Channel()), None, Limits(1 << 20, 1 << 20, 30.0))
    tracemalloc.start()
    try:
        for encoding, bomb in bombs.items():
            more = [(b"content-encoding", encoding.encode())]
            status, reply = await post(ingest, bomb, "application/octet-stream", more)
            assert status == 413, json.dumps(reply)
        assert tracemalloc.get_traced_memory()[1] < 40 << 20  # two pieces of 16 MiB
    finally:
        tracemalloc.stop()
