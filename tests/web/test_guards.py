"""Limits hold for what they say, in each format, and replies have nothing that is the server's own."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.testing import virtual_time
from asyncdata.web.body_memory import bytes_of_items
from asyncdata.web.channel_writers import MemoryWriter, writer_of
from asyncdata.web.decoding import BodyDecoder, BodyError
from asyncdata.web.http import Ingest, Limits
from asyncdata.web.websocket import IngestSocket

pytestmark = pytest.mark.web

msgspec = pytest.importorskip("msgspec")

LOCAL = ("127.0.0.1", 1)
KIND = (b"content-type", b"application/x-ndjson")


def as_json(items: list[Any]) -> bytes:
    return json.dumps(items).encode()


def as_lines(items: list[Any]) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def as_messagepack(items: list[Any]) -> bytes:
    return msgspec.msgpack.encode(items)


ENCODED: dict[str, Callable[[list[Any]], bytes]] = {"json": as_json, "ndjson": as_lines, "msgpack": as_messagepack}


def decoded(form: str, body: bytes, item_bytes: int, step: int = 1 << 20) -> list[Any]:
    decoder = BodyDecoder(form, None, 1 << 20, item_bytes)
    for start in range(0, len(body), step):
        decoder.feed(body[start : start + step])
    return decoder.finish()


@pytest.mark.parametrize("form", ENCODED)
def test_no_item_is_longer_than_its_limit(form: str) -> None:
    encode = ENCODED[form]
    items = ["x" * 90, {"y": [1, 2]}, "z" * 90]
    assert decoded(form, encode(items), 100) == items
    for place in range(3):
        wrong = [*items[:place], "x" * 101, *items[place:]]
        with pytest.raises(BodyError, match="more than 100 bytes") as caught:
            decoded(form, encode(wrong), 100)
        assert (caught.value.status, caught.value.line) == (413, place + 1 if form == "ndjson" else None)
    with pytest.raises(BodyError, match="more than 100 bytes"):  # a body that is no array is one item
        decoded(form, encode([{"x": "x" * 100}])[1:] if form == "msgpack" else b'{"x": "%s"}' % (b"x" * 100), 100)
    with pytest.raises(BodyError) as caught:
        decoded(form, encode([*items, "q" * 50])[:-7] + b"\xc1", 100)
    assert caught.value.status == 400


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_blank_lines_are_counted(step: int) -> None:
    body = b"\n \n1\n\t\r\n  2 \r\n\n\n3"
    assert decoded("ndjson", body, 100, step) == [1, 2, 3]
    with pytest.raises(BodyError, match="line 8") as caught:
        decoded("ndjson", body + b"}\n4\n", 100, step)
    assert caught.value.line == 8


def memory_of(value: Any, seen: dict[int, Any]) -> int:
    """The bytes of all objects that a value has, those that it has twice only once."""
    if id(value) in seen:
        return 0
    seen[id(value)] = value
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        size += sum(memory_of(part, seen) for pair in value.items() for part in pair)
    if isinstance(value, list):
        size += sum(memory_of(part, seen) for part in value)
    return size


VALUES: dict[str, Callable[[int], Any]] = {
    "empty dicts": lambda _: {},
    "empty lists": lambda _: [],
    "small numbers": lambda _: 1,
    "numbers": lambda n: n + 1000,
    "fractions": lambda n: n / 8,
    "texts": str,
    "characters": lambda n: "abcdef"[n % 6],
    "dicts": lambda n: {"x": n, "y": n / 8},
    "dicts of names": lambda n: {str(n): n},
    "large dicts": lambda n: {f"{n}/{m}": m / 8 for m in range(30)},
    "lists": lambda n: [n / 8],
    "vectors": lambda n: [n / 7, n / 3, n / 9] * 9,
    "nested": lambda n: [[[[{"x": [[n]]}]]]],
    "long texts": lambda n: f"It is, as one may say, a long text, number {n}. " * 9,
    "umlauts": lambda n: f"\xe4\xf6\xfc {n} " * 20,
    "wide": lambda n: f"{n} " * 30 + "\U0001f600",
}


@pytest.mark.parametrize("form", ENCODED)
@pytest.mark.parametrize("what", VALUES)
def test_a_channel_counts_the_memory_of_items(form: str, what: str) -> None:
    body = ENCODED[form]([VALUES[what](number) for number in range(500)])
    items = decoded(form, body, 1 << 20)
    counted, taken = bytes_of_items(form, body, items, decoded=False), memory_of(items, {})
    assert counted >= 0.8 * taken
    assert counted <= max(5 * taken, 2 * len(body)) + 50_000  # small numbers and keys are shared


def test_what_json_cannot_hold_is_counted_too() -> None:
    for item in ({(1, 2): 3.5}, float("nan"), msgspec.msgpack.Ext(5, b"x" * 100), b"x" * 1000):
        body = as_messagepack([item] * 50)
        assert bytes_of_items("msgpack", body, decoded("msgpack", body, 1 << 20), decoded=False) >= len(body)


async def post(
    ingest: Ingest, body: bytes, kind: str, more: Sequence[tuple[bytes, bytes]] = ()
) -> tuple[int, dict[str, Any]]:
    """The status and the reply of a request."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await ingest({"headers": [(b"content-type", kind.encode()), *more], "client": LOCAL}, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


async def test_a_full_channel_of_small_items_takes_no_more_memory_than_it_may() -> None:
    channel = ad.Channel(max_items=1 << 20, max_bytes=1 << 20)
    ingest = Ingest(MemoryWriter(channel), None, Limits(1 << 20, 1 << 20, 30.0))
    statuses = [(await post(ingest, as_json([{}] * 1000), "application/json"))[0] for _ in range(50)]
    assert set(statuses) == {200, 429}
    assert channel.stats()["items"] * sys.getsizeof({}) <= 1 << 20
    made = ad.Channel(max_items=1 << 20, max_bytes=1 << 20)
    ingest = Ingest(MemoryWriter(made), lambda data: bytes(int(data)), Limits(1 << 20, 1 << 20, 30.0))
    assert (await post(ingest, b"10\n500000\n", "application/x-ndjson"))[0] == 200
    assert (await post(ingest, b"10\n700000\n", "application/x-ndjson"))[0] == 429


async def test_replies_have_nothing_of_the_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def decode(data: bytes) -> Any:
        raise ValueError("of the server's own")

    caplog.set_level(logging.DEBUG)
    for channel in (ad.Channel(), ad.DurableChannel(tmp_path / "spool")):
        ingest = Ingest(writer_of(channel), decode, Limits(1 << 20, 1 << 20, 30.0))
        status, reply = await post(ingest, b"x", "application/octet-stream")
        assert (status, reply["error"]) == (400, "the server's decode= cannot decode it")
        channel.close()
        ingest = Ingest(writer_of(channel), None, Limits(1 << 20, 1 << 20, 30.0))
        status, reply = await post(ingest, b"x", "application/octet-stream")
        assert (status, str(tmp_path) in reply["error"]) == (503, False)
    assert caplog.text.count("of the server's own") == 2
    assert str(tmp_path) in caplog.text
    with ad.DurableChannel(tmp_path / "small", max_bytes=9_000) as small:
        ingest = Ingest(writer_of(small), None, Limits(1 << 20, 1 << 20, 30.0))
        replies = [await post(ingest, b"x" * 1000, "application/octet-stream") for _ in range(20)]
        assert replies[-1] == (429, {"error": "the channel is full; send the request again later", "accepted": 0})


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("gone", [False, True])
def test_a_server_that_never_takes_a_reply_is_not_waited_for(place: int, gone: bool) -> None:
    """As some that have no client any more, whether the application has been told of that or not."""
    taken = list[Any]()
    part = {"type": "http.disconnect"} if gone else {"type": "http.request", "body": b"1\n", "more_body": False}

    async def receive() -> Any:
        return part

    async def send(message: Any) -> None:
        if len(taken) == place:
            await asyncio.get_running_loop().create_future()
        taken.append(message["type"])

    async def ask() -> int:
        ingest = Ingest(MemoryWriter(ad.Channel()), None, Limits(1 << 20, 1 << 20, 30.0))
        scope = {"type": "http", "headers": [KIND], "client": LOCAL, "query_string": b""}
        with nullcontext() if gone else pytest.raises(TimeoutError, match="has gone, or has read no reply for 10 s"):
            await ingest(scope, receive, send)
        return ingest.counts.items

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        assert runner.run(ask()) == (0 if gone else 1)
    assert taken == ["http.response.start"][:place]


@pytest.mark.parametrize(("length", "status"), [(b"4", 200), (b"5", 400), (b"3", 200)])
async def test_a_body_that_is_shorter_than_its_client_said_is_refused(length: bytes, status: int) -> None:
    ingest = Ingest(MemoryWriter(ad.Channel()), None, Limits(1 << 20, 1 << 20, 30.0))
    parts = [{"type": "http.request", "body": b"1\n", "more_body": more} for more in (True, False)]
    sent = list[Any]()

    async def receive() -> Any:
        return parts.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/x-ndjson"), (b"content-length", length)]
    await ingest({"type": "http", "headers": headers, "client": LOCAL, "query_string": b""}, receive, send)
    assert (sent[0]["status"], ingest.counts.items) == (status, 2 if status == 200 else 0)


class Client:
    """A client of a WebSocket without a network: what it sends, and what it was sent."""

    def __init__(self, messages: list[Mapping[str, Any]]) -> None:
        self.messages = [{"type": "websocket.connect"}, *messages, {"type": "websocket.disconnect"}]
        self.sent: list[Any] = []
        self.received = 0

    async def receive(self) -> Mapping[str, Any]:
        self.received += 1
        return self.messages.pop(0)

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def connect(self, ingest: Ingest, query: bytes = b"") -> None:
        scope = {"headers": [], "client": LOCAL, "query_string": query}
        await IngestSocket(ingest, ad.Channel())(scope, self.receive, self.send)


@pytest.mark.parametrize("query", [b"key=" + b"x" * 1001, b"key=", b"key=%ff", b"key=%C3%A4" + b"%C3%A4" * 500])
async def test_a_key_of_a_websocket_has_a_limit(query: bytes) -> None:
    ingest, client = Ingest(MemoryWriter(ad.Channel()), None, Limits(1 << 20, 1 << 20, 30.0)), Client([])
    await client.connect(ingest, query)
    assert client.sent[0]["type"] == "websocket.close"
    assert ingest.counts.requests == {400: 1}
    longest = Client([])
    await longest.connect(ingest, b"key=" + b"x" * 1000)
    assert longest.sent[0]["type"] == "websocket.accept"


class SlowWriter:
    """Accepts after all others that could be accepted: so long the bodies are in memory."""

    def __init__(self) -> None:
        self.most = self.now = 0

    async def put(self, payload: Any) -> bool:
        self.now += len(payload.body)
        self.most = max(self.most, self.now)
        for _ in range(100):
            await asyncio.sleep(0)
        self.now -= len(payload.body)
        return True


async def test_messages_of_websockets_that_wait_take_no_more_memory_than_bodies_may() -> None:
    writer, message = SlowWriter(), {"type": "websocket.receive", "bytes": b"x" * 1000}
    ingest = Ingest(writer, None, Limits(10_000, 10_000, 30.0, receiving_bytes=50_000))
    client = Client([message] * 100)
    await client.connect(ingest)
    assert ingest.counts.requests == {200: 100}
    assert writer.most <= 11_000
    clients = [Client([message] * 100) for _ in range(9)]
    await asyncio.gather(*[client.connect(ingest) for client in clients])
    assert set(ingest.counts.requests) == {200, 503}
    assert writer.most <= 51_000
    assert ingest.receiving == 0
