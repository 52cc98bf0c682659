"""Messages of a WebSocket are taken in order and acknowledged, also over many connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.web import ingest_app

pytestmark = [pytest.mark.web, pytest.mark.usefixtures("nothing_left")]

sync = pytest.importorskip("websockets.sync.client")
exceptions = pytest.importorskip("websockets.exceptions")
msgspec = pytest.importorskip("msgspec")
pytest.importorskip("uvicorn")

from tests.web.serving import served  # noqa: E402


@pytest.fixture(params=["Channel", "DurableChannel"])
def channel(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return ad.Channel() if request.param == "Channel" else ad.DurableChannel(tmp_path / "spool")


def stored(channel: Any) -> list[Any]:
    if isinstance(channel, ad.DurableChannel):
        return list(ad.Dataset.from_channel(channel, follow=False))
    return list(ad.Dataset.from_channel(channel))


@contextmanager
def socket(url: str, query: str = "", **how: Any) -> Iterator[Any]:
    with sync.connect(url.replace("http", "ws") + f"/ingest{query}", **how) as found:
        yield found


def test_messages_are_taken_in_order_and_acknowledged(channel: Any) -> None:
    with served(ingest_app(channel)) as url:
        with socket(url) as one:
            for number in range(300):  # sent before the first is acknowledged
                one.send(f"{number}\n{number}")
            for number in range(300):
                assert json.loads(one.recv()) == {"message": number + 1, "accepted": 2}
        with socket(url, "?content_type=application/msgpack&version=3") as one:
            one.send(msgspec.msgpack.encode(["a", "b"]))
            assert json.loads(one.recv()) == {"message": 1, "accepted": 2}
        with socket(url) as one:
            one.send(b"\x00")
            assert json.loads(one.recv()) == {"message": 1, "accepted": 1}
    assert stored(channel) == [number for number in range(300) for _ in range(2)] + ["a", "b", b"\x00"]


def test_a_malformed_message_is_refused_alone(channel: Any) -> None:
    with served(ingest_app(channel, max_body_bytes=1000)) as url, socket(url) as one:
        for message in ("1\n2", "3\nx\n4", "5", "6" * 2000, "7", "x", "8"):
            one.send(message)
        told = [json.loads(one.recv()) for _ in range(7)]
        assert [reply.get("status", 200) for reply in told] == [200, 400, 200, 413, 200, 400, 200]
        assert (told[1]["line"], told[1]["accepted"]) == (2, 0)
    assert stored(channel) == [1, 2, 5, 7, 8]


def send_until_refused(url: str, done: int) -> int:
    """Send the numbers up to 40 that were not acknowledged, and the last that was; return what is acknowledged then."""
    first = max(0, done - 1)
    with socket(url, f"?key=sensor&first={first}") as one:
        with suppress(exceptions.ConnectionClosed):
            for number in range(first, 40):
                one.send(str(number))
        while done < 40:
            try:
                reply = json.loads(one.recv())
            except exceptions.ConnectionClosed:
                break
            if reply.get("status", 200) == 200:
                done = reply["message"] + 1
            else:
                assert (reply["status"], reply["accepted"]) == (429, 0)
    assert done == 40 or one.close_code == 1013
    return done


def test_a_client_goes_on_where_it_was_acknowledged(tmp_path: Path) -> None:
    """The channel is full after some messages; the client comes again with those that were not acknowledged."""
    for channel in (ad.Channel(max_items=7), ad.DurableChannel(tmp_path, max_bytes=600, segment_bytes=1)):
        done, rounds, found = 0, 0, list[int]()
        with served(ingest_app(channel)) as url, ad.Dataset.from_channel(channel).prefetch(1).iterate() as items:
            while done < 40:
                rounds += 1
                done = send_until_refused(url, done)
                while len(found) < done:
                    found.append(next(items))
                if isinstance(channel, ad.DurableChannel):
                    channel.trim(items.state_dict())
            assert found == list(range(40))
            assert rounds > 1


def test_who_is_not_admitted_is_not_connected() -> None:
    channel = ad.Channel()
    app = ingest_app(channel, authenticate=lambda headers: headers.get("authorization") == "Bearer x")
    with served(app) as url:
        with pytest.raises(exceptions.InvalidStatus) as refused, socket(url):
            pass
        assert refused.value.response.status_code == 401
        assert json.loads(refused.value.response.body or b"")["error"] == "the request is not authenticated"
        with socket(url, additional_headers={"Authorization": "Bearer x"}) as one:
            one.send("1")
            assert json.loads(one.recv())["accepted"] == 1
    with served(ingest_app(other := ad.Channel())) as url:
        with pytest.raises(exceptions.InvalidStatus), socket(url, origin="https://evil.example"):
            pass
        with pytest.raises(exceptions.InvalidStatus) as wrong, socket(url, "?first=many"):
            pass
        assert wrong.value.response.status_code == 400
    assert stored(channel) == [1]
    assert stored(other) == []


def test_a_client_that_leaves_has_sent_what_came_whole(channel: Any) -> None:
    with served(ingest_app(channel)) as url:
        with socket(url) as one:
            for number in range(10):
                one.send(str(number))
            assert json.loads(one.recv())["message"] == 1
        with socket(url) as one:
            one.send("10")
            assert json.loads(one.recv())["message"] == 1
    assert stored(channel) == list(range(11))


async def test_what_was_sent_is_taken_though_its_acknowledgement_cannot_be_sent() -> None:
    channel, left = ad.Channel(), asyncio.Event()
    rest = [{"type": "websocket.receive", "text": str(number)} for number in range(1, 10)]
    coming = iter([{"type": "websocket.connect"}, {"type": "websocket.receive", "text": "0"}])
    after = iter([*rest, {"type": "websocket.disconnect"}])

    async def receive() -> dict[str, Any]:
        if (message := next(coming, None)) is None:
            await left.wait()
            message = next(after)
        return message

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "websocket.send":
            left.set()
            raise OSError("the client has left")

    await ingest_app(channel)({"type": "websocket", "path": "/ingest", "headers": []}, receive, send)
    channel.close()
    assert stored(channel) == list(range(10))
