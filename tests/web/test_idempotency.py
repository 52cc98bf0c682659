"""An idempotency key that comes again: with the same body it was accepted before, with another one it is refused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.web import ingest_app
from asyncdata.web.folder import ChannelFolder
from asyncdata.web.idempotency import digest_of_key
from asyncdata.web.record import Kind, Record, framed

pytestmark = [pytest.mark.web, pytest.mark.usefixtures("nothing_left")]

httpx = pytest.importorskip("httpx")
sync = pytest.importorskip("websockets.sync.client")
pytest.importorskip("uvicorn")

from tests.web.serving import served  # noqa: E402

Open = Callable[[], Any]


@pytest.fixture(params=["Channel", "DurableChannel"])
def channel(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return ad.Channel() if request.param == "Channel" else ad.DurableChannel(tmp_path / "spool")


def stored(channel: Any) -> list[Any]:
    channel.close()
    if isinstance(channel, ad.DurableChannel):
        return list(ad.Dataset.from_channel(channel, follow=False))
    return list(ad.Dataset.from_channel(channel))


def post(client: Any, body: bytes, key: str, kind: str = "application/x-ndjson") -> tuple[int, dict[str, Any]]:
    reply = client.post("/ingest", content=body, headers={"Content-Type": kind, "Idempotency-Key": key})
    return reply.status_code, reply.json()


def test_requests(channel: Any) -> None:
    with served(ingest_app(channel)) as url, httpx.Client(base_url=url, timeout=120) as client:
        assert post(client, b"1\n2\n", "a") == (200, {"accepted": 2})
        for body, kind in (
            (b"1\n3\n", "x-ndjson"),
            (b"1\n2\n\n", "x-ndjson"),
            (b"[1,2]", "json"),
            (b"1\n2\n", "octet-stream"),
        ):
            status, reply = post(client, body, "a", f"application/{kind}")
            assert (status, reply["accepted"]) == (422, 0)
            assert "used before with another body" in reply["error"]
        assert post(client, b"1\n2\n", "a") == (200, {"accepted": 2, "duplicate": True})
        assert post(client, b"1\n2\n", "a", "application/jsonl") == (200, {"accepted": 2, "duplicate": True})
        assert post(client, b"1\n3\n", "b") == (200, {"accepted": 2})
        counts = client.get("/metrics").text.splitlines()
        assert 'asyncdata_ingest_requests_total{status="422"} 4' in counts
        assert "asyncdata_ingest_duplicates_total 2" in counts
        assert "422" in client.get("/openapi.json").json()["paths"]["/ingest"]["post"]["responses"]
    assert stored(channel) == [1, 2, 1, 3]


def exchange(url: str, query: str, messages: list[str]) -> list[tuple[int, int]]:
    """Send messages, and return the number and status of each reply."""
    with sync.connect(url.replace("http", "ws") + f"/ingest?{query}") as socket:
        for message in messages:
            socket.send(message)
        replies = [json.loads(socket.recv()) for _ in messages]
    return [(reply["message"], reply.get("status", 200)) for reply in replies]


def test_messages_of_a_client_that_was_started_anew(channel: Any) -> None:
    with served(ingest_app(channel)) as url:
        assert exchange(url, "key=s", ["1", "2", "3"]) == [(1, 200), (2, 200), (3, 200)]
        assert exchange(url, "key=s&first=3", ["3", "4"]) == [(3, 200), (4, 200)]
        assert exchange(url, "key=s", ["5", "2", "6", "4", "7"]) == [(1, 422), (2, 200), (3, 422), (4, 200), (5, 200)]
    assert stored(channel) == [1, 2, 3, 4, 7]


@pytest.mark.parametrize("segment_bytes", [1, 1 << 20])
def test_after_a_restart(tmp_path: Path, segment_bytes: int) -> None:
    async def send(body: bytes, key: str, kind: str = "application/octet-stream") -> bool:
        async with ad.DurableChannel(tmp_path, segment_bytes=segment_bytes) as channel:
            return await channel.send(body, key, content_type=kind)

    for key in "123":
        assert asyncio.run(send(key.encode(), key))
    for key in "123":
        for wrong in ((b"x", key), (key.encode(), key, "application/jsonl")):
            with pytest.raises(ad.PlanError, match="used before with another body"):
                asyncio.run(send(*wrong))
        assert not asyncio.run(send(key.encode(), key))
    assert list(ad.Dataset.from_channel(tmp_path, follow=False)) == [b"1", b"2", b"3"]


def test_at_the_same_time(tmp_path: Path) -> None:
    async def send() -> list[Any]:
        async with ad.DurableChannel(tmp_path) as channel:
            calls = [channel.send(b"%d" % (number % 2), "a") for number in range(6)]
            return await asyncio.gather(*calls, return_exceptions=True)

    found = asyncio.run(send())
    assert found[::2] == [True, False, False]
    assert {type(error).__name__ for error in found[1::2]} == {"KeyReusedError"}
    assert list(ad.Dataset.from_channel(tmp_path, follow=False)) == [b"0"]


def test_keys_that_earlier_versions_stored_are_known_without_their_bodies(tmp_path: Path) -> None:
    folder = ChannelFolder(tmp_path)
    folder.create()
    keys = Record(Kind.KEYS_ALONE, "bytes", time.time(), None, b"", digest_of_key("a") + digest_of_key("b"))
    data = Record(Kind.DATA, "bytes", time.time(), None, b"c", b"3")
    folder.segment(0).write_bytes(framed(keys) + framed(data))

    async def send() -> None:
        async with ad.DurableChannel(tmp_path, segment_bytes=1) as channel:
            assert not await channel.send(b"1", "a")
            assert not await channel.send(b"2", "a")
            assert not await channel.send(b"3", "c")
            with pytest.raises(ad.PlanError, match="another body"):
                await channel.send(b"1", "c")
            assert await channel.send(b"4", "d")
        async with ad.DurableChannel(tmp_path) as channel:
            assert not await channel.send(b"5", "b")
            with pytest.raises(ad.PlanError, match="another body"):
                await channel.send(b"1", "d")

    asyncio.run(send())
    assert list(ad.Dataset.from_channel(tmp_path, follow=False)) == [b"3", b"4"]
