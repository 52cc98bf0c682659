"""Whatever a server sends, it is asked at most twice a second, less and less often, and given up in time.

Real servers and clients on one loop, in virtual time.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.testing import virtual_time
from asyncdata.web.http_stream import HttpStream
from asyncdata.web.websocket_stream import WebSocketStream
from tests.web.streaming import events, head

pytestmark = pytest.mark.web

pytest.importorskip("httpx")
server = pytest.importorskip("websockets.asyncio.server")

GIVE_UP = 300
EVENTS = head("text/event-stream")

BEGUN = EVENTS + b"retry: 0\n\n" + events([1])
SIGNS_OF_LIFE: dict[str, bytes] = {
    "nothing": b"",
    "an empty stream": EVENTS,
    "a comment": EVENTS + b": still here\n\n",
    "a comment, and no wait": EVENTS + b"retry: 0\n: still here\n\n",
    "no wait, in digits of another script": EVENTS + b"retry: \xd9\xa0\n\n",
    "a wait of months": EVENTS + b"retry: 9999999999\n\n",
    "an id without data": EVENTS + b"retry: 0\nid: 2\n\n",
    "an event that was given": EVENTS + b"retry: 0\n\ndata: 2\n\n",
    "an event that is incomplete": EVENTS + b"retry: 0\nid: 7\ndata: x\n",
    "a compressed comment": head("text/event-stream", more="Content-Encoding: gzip\r\n") + gzip.compress(b":\n\n")[:-3],
    "503": head("text/plain", "503 Service Unavailable"),
    "429, again at once": head("text/plain", "429 Too Many Requests", "Retry-After: 0\r\n"),
    "a redirect to nowhere": head("text/plain", "302 Found", "Location: http://\r\n"),
    "no HTTP": b"hello\r\n\r\n",
}
ENDS: dict[str, bytes] = {
    "redirects for ever": head("text/plain", "302 Found", "Location: /stream\r\n"),
    "a redirect to another protocol": head("text/plain", "302 Found", "Location: ftp://127.0.0.1/\r\n"),
    "404": head("text/plain", "404 Not Found"),
    "401": head("text/plain", "401 Unauthorized"),
    "a page": head("text/html") + b"<html>",
    "lines": head("application/x-ndjson") + b"1\n",
    "an unknown encoding": head("text/event-stream", more="Content-Encoding: compress\r\n") + events([3]),
    "no gzip": head("text/event-stream", more="Content-Encoding: gzip\r\n") + events([3]),
}


def virtually(body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await body()

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        runner.run(main())


class Asked:
    """A server of events that answers the first requests in turn, and all later ones by the last answer."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = answers
        self.times: list[float] = []
        self.ids: list[str | None] = []
        self.answering: set[Any] = set()

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """Serve at a URL until all answers are sent."""
        async with await asyncio.start_server(self.answer, "127.0.0.1", 0) as running:
            yield f"http://127.0.0.1:{running.sockets[0].getsockname()[1]}/stream"
            await asyncio.gather(*self.answering)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.answering.add(asyncio.current_task())
        with suppress(OSError, asyncio.IncompleteReadError):  # no request came
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("utf-8").lower().split("\r\n")
            named = (line.partition(": ")[2] for line in lines if line.startswith("last-event-id:"))
            self.ids.append(next(named, None))
            self.times.append(asyncio.get_running_loop().time())
            writer.write(self.answers[min(len(self.times), len(self.answers)) - 1])
            await writer.drain()
        with suppress(OSError):
            writer.close()
            await writer.wait_closed()


async def read(stream: AsyncIterable[Any], most: int = 10) -> tuple[list[Any], Exception | None]:
    """Items up to an error or the end; errors after the first are none."""
    reader, found = aiter(stream), list[Any]()
    try:
        while len(found) < most:
            found.append(await anext(reader))
    except StopAsyncIteration:
        return found, None
    except Exception as error:
        with pytest.raises(StopAsyncIteration):
            await anext(reader)
        return found, error
    finally:
        await reader.aclose()  # type: ignore[attr-defined]
    return found, None


async def read_events(asked: Asked, most: int = 10) -> tuple[list[Any], Exception | None]:
    async with asked.served() as url:
        return await read(HttpStream(url, None, {}, 300.0, GIVE_UP), most)


def check_pauses(times: list[float]) -> None:
    """After the first break the pauses grow up to half a minute, and end in time."""
    pauses = [after - before for before, after in pairwise(times)]
    assert min(pauses) >= 0.5
    assert max(pauses) <= 30.1
    assert len(pauses) < 40
    assert sum(pauses[-3:]) > 45
    assert GIVE_UP - 31 <= times[-1] - times[0] <= GIVE_UP + 31


@pytest.mark.parametrize("sent", SIGNS_OF_LIFE)
def test_a_server_that_sends_no_more_events_is_given_up(sent: str) -> None:
    async def body() -> None:
        asked = Asked(BEGUN + b"data: 2\n\n", SIGNS_OF_LIFE[sent])
        found, error = await read_events(asked)
        assert found == [1, 2]
        assert isinstance(error, ConnectionError)
        check_pauses(asked.times)

    virtually(body)


@pytest.mark.parametrize("sent", SIGNS_OF_LIFE)
def test_a_server_that_never_sent_an_event_is_asked_a_few_times_at_most(sent: str) -> None:
    async def body() -> None:
        asked = Asked(SIGNS_OF_LIFE[sent])
        found, error = await read_events(asked)
        assert isinstance(error, ConnectionError) or found
        if len(asked.times) > 1 and not found:
            check_pauses(asked.times)

    virtually(body)


@pytest.mark.parametrize("sent", ENDS)
@pytest.mark.parametrize("first", [False, True])
def test_what_would_be_the_same_again_is_asked_for_once(sent: str, first: bool) -> None:
    async def body() -> None:
        asked = Asked(ENDS[sent]) if first else Asked(BEGUN, ENDS[sent])
        found, error = await read_events(asked)
        if sent == "lines" and first:
            assert (found, error) == ([1], None)
            return
        assert found == ([] if first else [1])
        assert isinstance(error, (OSError, ValueError))
        assert len(asked.times) == (0 if first else 1) + (21 if sent == "redirects for ever" else 1)

    virtually(body)


@pytest.mark.parametrize("each", [b"data: 3\n\n", events([3]), b"retry: 0\ndata: 3\n\n"])
def test_a_server_that_closes_after_each_event_is_asked_twice_a_second(each: bytes) -> None:
    async def body() -> None:
        asked = Asked(EVENTS + b"retry: 0\n\n" + each)
        found, error = await read_events(asked, 100)
        assert (found, error) == ([3] * 100, None)
        assert asked.times[-1] - asked.times[0] >= 0.5 * 99

    virtually(body)


def test_a_server_may_ask_for_longer_waits() -> None:
    async def body() -> None:
        asked = Asked(EVENTS + b"retry: 20000\n\n" + events([3]))
        await read_events(asked, 11)
        assert 100 <= asked.times[-1] - asked.times[0] <= 200

    virtually(body)


@pytest.mark.parametrize("identity", ["ü", "日本", "a b", " a\t", "%20", '"'])
def test_any_id_is_sent_back(identity: str) -> None:
    async def body() -> None:
        asked = Asked(EVENTS + f"id: {identity}\ndata: 1\n\n".encode(), EVENTS + events([2]))
        assert await read_events(asked, 2) == ([1, 2], None)
        assert asked.ids == [None, identity.strip()]

    virtually(body)


def test_an_id_that_no_header_can_have_is_an_error() -> None:
    async def body() -> None:
        asked = Asked(EVENTS + b"id: a\x0bb\ndata: 1\n\n")
        found, error = await read_events(asked, 2)
        assert found == [1]
        assert isinstance(error, ConnectionError)
        assert len(asked.times) == 1

    virtually(body)


async def read_messages(
    talk: Callable[[Any], Awaitable[None]], times: list[float], most: int = 10, **how: Any
) -> tuple[list[Any], Exception | None]:
    async def connected(socket: Any) -> None:
        times.append(asyncio.get_running_loop().time())
        await talk(socket)

    async with server.serve(connected, "127.0.0.1", 0, **how) as running:
        url = f"ws://127.0.0.1:{running.sockets[0].getsockname()[1]}/"
        return await read(WebSocketStream(url, None, None, {}, GIVE_UP), most)


@pytest.mark.parametrize("code", [1000, 1001, 1005, 1006, 1011, 1012, 1013, 1014, 3008, 4000])
def test_a_websocket_has_ended_only_if_it_says_so(code: int) -> None:
    times: list[float] = []

    async def talk(socket: Any) -> None:
        if len(times) == 1:
            await socket.send("1")
        if code == 1006:
            socket.transport.abort()
        elif code == 1005:
            socket.protocol.send_close()
            socket.transport.write(b"".join(socket.protocol.data_to_send()))
            await socket.wait_closed()
        else:
            await socket.close(code)

    async def body() -> None:
        found, error = await read_messages(talk, times)
        assert found == [1]
        if code == 1000:
            assert (error, len(times)) == (None, 1)
            return
        assert isinstance(error, ConnectionError)
        check_pauses(times)

    virtually(body)


@pytest.mark.parametrize("code", [1002, 1003, 1007, 1008, 1009, 1010, 3000, 3003])
def test_a_websocket_that_is_refused_is_an_error_at_once(code: int) -> None:
    times: list[float] = []

    async def talk(socket: Any) -> None:
        await socket.send("1")
        await socket.close(code, "no")

    async def body() -> None:
        found, error = await read_messages(talk, times)
        assert (found, len(times)) == ([1], 1)
        assert isinstance(error, ConnectionError)
        assert str(code) in str(error)

    virtually(body)


def test_a_server_that_closes_after_each_message_is_asked_twice_a_second() -> None:
    times: list[float] = []

    async def talk(socket: Any) -> None:
        await socket.send("1")
        await socket.close(1012)

    async def body() -> None:
        assert await read_messages(talk, times, 50) == ([1] * 50, None)
        assert times[-1] - times[0] >= 0.5 * 49

    virtually(body)


def test_a_server_that_vanishes_is_noticed() -> None:
    """Its host has lost power, say: nothing comes any more, not even a reply to a ping."""
    times: list[float] = []

    async def talk(socket: Any) -> None:
        await socket.send(str(len(times)))
        if len(times) == 1:
            socket.transport.pause_reading()
            await asyncio.sleep(3600)

    async def body() -> None:
        assert await read_messages(talk, times, 2, ping_interval=None) == ([1, 2], None)
        assert times[1] - times[0] <= 60

    virtually(body)


@pytest.mark.parametrize("status", [502, 503, 504, 429, 404, 401])
def test_a_server_that_is_started_anew_may_refuse_for_a_while(status: int) -> None:
    times: list[float] = []

    def refuse(connection: Any, request: Any) -> Any:
        if times and len(times) < 4:
            times.append(asyncio.get_running_loop().time())
            return connection.respond(status, "not now")
        return None

    async def talk(socket: Any) -> None:
        await socket.send(str(len(times)))
        await socket.close(1012)

    async def body() -> None:
        found, error = await read_messages(talk, times, 2, process_request=refuse)
        if status in (401, 404):
            assert found == [1]
            assert isinstance(error, ConnectionError)
            assert len(times) == 2
        else:
            assert (found, error) == ([1, 5], None)

    virtually(body)


def test_a_subscription_that_cannot_be_made_is_an_error_once() -> None:
    times: list[float] = []

    async def talk(socket: Any) -> None:
        times.append(0)
        await socket.wait_closed()

    def subscribe(last: Any) -> str:
        raise KeyError("who")

    async def body() -> None:
        async with server.serve(talk, "127.0.0.1", 0) as running:
            url = f"ws://127.0.0.1:{running.sockets[0].getsockname()[1]}/"
            found, error = await read(WebSocketStream(url, None, subscribe, {}, GIVE_UP))
        assert found == []
        assert isinstance(error, KeyError)

    virtually(body)


def test_errors_that_are_left_out_do_not_ask_again() -> None:
    """With `ignore_errors` the stream simply ends."""

    async def body() -> None:
        asked = Asked(ENDS["redirects for ever"])
        async with asked.served() as url:
            ds = ad.Dataset.from_http_stream(url).ignore_errors()
            assert [item async for item in ds.with_options(ad.Options(placement="current"))] == []
        assert len(asked.times) == 21

    virtually(body)
