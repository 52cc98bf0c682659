"""Bodies that a server compresses are read whole, in several parts too, and a part that is missing is an error."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.formats.compression import zstd_module
from asyncdata.web.content_encoding import ContentDecoder, accepted_encodings
from tests.reference import Failed
from tests.running import results
from tests.web.streaming import Answer, events, head, http

pytestmark = [pytest.mark.web, pytest.mark.usefixtures("nothing_left")]

brotli = pytest.importorskip("brotli")
zstd = zstd_module()
pytest.importorskip("httpx")


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "Deflate ": raw_deflate,
    "zstd": zstd.compress,
    "br": brotli.compress,
    "br, gzip": lambda data: gzip.compress(brotli.compress(data)),
    "gzip,identity,zstd": lambda data: zstd.compress(gzip.compress(data)),
    "": bytes,
}
SEVERAL = ("gzip", "deflate", "zstd")
"""The encodings of which a body may have several streams, one after the other."""


def decoded(encodings: str, pieces: list[bytes]) -> bytes:
    decoder = ContentDecoder(encodings, "it")
    found = b"".join(bytes(part) for piece in pieces for part in decoder.feed(piece))
    decoder.finish()
    return found


@pytest.mark.parametrize("encodings", ENCODINGS)
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_what_was_compressed_comes_back_wherever_it_is_cut(encodings: str, step: int) -> None:
    for content in (b"", b"x", b"".join(b"%d," % number for number in range(300))):
        data = ENCODINGS[encodings](content)
        assert decoded(encodings, [data[at : at + step] for at in range(0, len(data), step)]) == content


@pytest.mark.parametrize("encodings", SEVERAL)
def test_several_streams_are_one_body(encodings: str) -> None:
    data = b"".join(ENCODINGS[encodings](content) for content in (b"one", b"", b"two"))
    for step in (1, 5, 1000):
        assert decoded(encodings, [data[at : at + step] for at in range(0, len(data), step)]) == b"onetwo"


@pytest.mark.parametrize("encodings", [one for one in ENCODINGS if one])
def test_a_body_that_is_cut_is_an_error_wherever_that_is(encodings: str) -> None:
    data = ENCODINGS[encodings](b"".join(b"%d" % number for number in range(50)))
    for stop in range(1, len(data)):
        with pytest.raises(ad.DataLossError, match="cut short"):
            decoded(encodings, [data[:stop]])


def test_what_is_flushed_comes_at_once() -> None:
    stream, decoder = zlib.compressobj(wbits=31), ContentDecoder("gzip", "it")
    for number in range(3):
        data = stream.compress(b"%d" % number) + stream.flush(zlib.Z_SYNC_FLUSH)
        assert b"".join(map(bytes, decoder.feed(data))) == b"%d" % number


def test_little_that_becomes_much_comes_in_pieces() -> None:
    bomb = gzip.compress(zlib.compress(bytes(100 << 20), 9), 9)
    pieces = ContentDecoder("deflate, gzip", "it").feed(bomb)
    assert {len(piece) <= 16 << 20 for piece in pieces} == {True}


def body_of(kind: str, body: bytes, encodings: str, asked: list[str]) -> Answer:
    """One body, and then nothing."""

    async def answer(headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        asked.append(headers["accept-encoding"])
        if len(asked) > 1:
            writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            return
        writer.write(head(kind, more=f"Content-Length: {len(body)}\r\nContent-Encoding: {encodings}\r\n"))
        writer.write(body)

    return answer


@pytest.mark.parametrize("encodings", ENCODINGS)
def test_lines_and_events_of_a_server_that_compresses(encodings: str) -> None:
    parts = [range(40), range(40, 60)] if encodings in SEVERAL else [range(60)]
    lines = [b"".join(b"%d\n" % number for number in part) for part in parts]
    for kind, contents in (
        ("application/x-ndjson", lines),
        ("text/event-stream", [b"retry: 1\n\n", *map(events, parts)] if encodings in SEVERAL else [events(parts[0])]),
    ):
        asked: list[str] = []
        with http(body_of(kind, b"".join(map(ENCODINGS[encodings], contents)), encodings, asked)) as url:
            assert list(ad.Dataset.from_http_stream(url)) == list(range(60))
        assert asked[0] == accepted_encodings() == "gzip, deflate, br, zstd"


@pytest.mark.parametrize("encodings", ["gzip", "deflate", "br", "zstd"])
def test_lines_of_a_compressed_body_that_is_cut_are_given_and_then_the_error(encodings: str) -> None:
    body = ENCODINGS[encodings](b"".join(b"%d\n" % number for number in range(4000)))
    with http(body_of("application/x-ndjson", body[: len(body) // 2], encodings, [])) as url:
        *found, failed = results(ad.Dataset.from_http_stream(url))
    assert found == list(range(len(found)))
    assert len(found) < 4000
    assert isinstance(failed, Failed)
    cut = http(body_of("application/x-ndjson", body[: len(body) // 2], encodings, []))
    with cut as url, pytest.raises(ad.DataLossError, match="cut short"):
        list(ad.Dataset.from_http_stream(url))


@pytest.mark.parametrize(
    ("encodings", "error"), [("compress", "Content-Encoding must be one of gzip"), ("gzip", "is corrupt")]
)
def test_what_cannot_be_decoded_is_an_error(encodings: str, error: str) -> None:
    asked: list[str] = []
    with http(body_of("application/x-ndjson", b"1\n2\n", encodings, asked)) as url:
        with pytest.raises(ValueError, match=error):
            list(ad.Dataset.from_http_stream(url))
        assert len(list(ad.Dataset.from_http_stream(url).ignore_errors())) == 0
    assert len(asked) == 2


def test_events_whose_compression_ends_with_the_connection_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a server that compresses is stopped."""
    monkeypatch.setattr("asyncdata.web.reconnecting.SHORTEST_SECONDS", 0.001)
    asked: list[Any] = []

    async def answer(headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        asked.append(headers.get("last-event-id"))
        stream = zlib.compressobj(wbits=31)
        first = int(asked[-1] or -1) + 1
        content = b"retry: 1\n\n" + events(range(first, first + 3))
        writer.write(head("text/event-stream", more="Content-Encoding: gzip\r\n"))
        writer.write(stream.compress(content) + stream.flush(zlib.Z_SYNC_FLUSH))

    with http(answer) as url:
        assert list(ad.Dataset.from_http_stream(url).take(8)) == list(range(8))
    assert asked[:3] == [None, "2", "5"]
