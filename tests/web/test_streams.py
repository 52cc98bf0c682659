"""What services stream comes in order, also over connections that break."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

import asyncdata as ad
from tests.reference import Failed
from tests.running import results
from tests.web.streaming import Answer, events, head, http, running

pytestmark = [pytest.mark.web, pytest.mark.usefixtures("nothing_left")]

pytest.importorskip("httpx")
server = pytest.importorskip("websockets.asyncio.server")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconnect as soon as servers ask for it."""
    monkeypatch.setattr("asyncdata.web.reconnecting.SHORTEST_SECONDS", 0.001)


def counting(count: int, each: int, asked: list[str]) -> Answer:
    """Events up to a number, so many on each connection, then no more."""

    async def answer(headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        asked.append(headers.get("last-event-id", ""))
        first = int(asked[-1] or -1) + 1
        if first >= count:
            writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            return
        writer.write(head("text/event-stream") + b"retry: 1\n\n" + events(range(first, min(first + each, count))))

    return answer


def test_events_go_on_at_their_ids() -> None:
    asked: list[str] = []
    with http(counting(20, 7, asked)) as url:
        assert list(ad.Dataset.from_http_stream(url)) == list(range(20))
    assert asked == ["", "6", "13", "19"]


def test_a_state_goes_on_at_the_id() -> None:
    with http(counting(20, 7, [])) as url:
        ds = ad.Dataset.from_http_stream(url)
        with ds.iterate() as items:
            found = [next(items) for _ in range(9)]
            state = json.loads(json.dumps(items.state_dict()))
        assert found + list(ds.iterate(state=state)) == list(range(20))


def test_events_without_ids_between_those_that_have_one_are_given_once() -> None:
    async def answer(headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        begun = [b"id: a\ndata: 0\n\n", b"data: 1\n\n", b"data: 2\n\n", b"id: b\ndata: 3\n\n", b"data: 4\n\n"]
        match headers.get("last-event-id"):
            case None:
                writer.write(head("text/event-stream") + b"retry: 1\n\n" + b"".join(begun[:2]) + b"data: cut")
            case "a":
                writer.write(head("text/event-stream") + b"".join(begun[1:]))
            case _:
                writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")

    with http(answer) as url:
        assert list(ad.Dataset.from_http_stream(url)) == [0, 1, 2, 3, 4]


def pinged(headers: dict[str, str]) -> list[bytes]:
    """Twelve events with ids, and after each third one two pings, which are not stored."""
    first = int(headers.get("last-event-id", 0)) + 1
    found: list[bytes] = []
    for number in range(first, 13):
        found.append(events([number]))
        if number % 3 == 0:
            found += [b"data: 0\n\n", b"data: -1\n\n"]
    return found


async def pinging(headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
    if headers.get("last-event-id") == "12":
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
    else:
        writer.write(head("text/event-stream") + b"retry: 1\n\n" + b"".join(pinged(headers)))


@pytest.mark.parametrize("ahead", [1, 100])
def test_a_state_after_any_event_leads_to_the_next_one(ahead: int) -> None:
    with http(pinging) as url:
        ds = ad.Dataset.from_http_stream(url).prefetch(ahead)
        whole = list(ds)
        assert len(whole) == 20
        for count in range(21):
            with ds.iterate() as items:
                found = [next(items) for _ in range(count)]
                state = json.loads(json.dumps(items.state_dict()))
            found += ds.iterate(state=state)
            assert [item for item in found if item > 0] == list(range(1, 13))
            assert found[:count] == whole[:count]


def test_events_that_a_step_holds_are_read_again_or_the_state_is_an_error() -> None:
    """Those that come after a ping have other numbers when they come without it."""
    with http(pinging) as url:
        ds = ad.Dataset.from_http_stream(url).shuffle(4, seed=1, reshuffle_each_iteration=False)
        refused = 0
        for count in range(21):
            with ds.iterate() as items:
                found = [next(items) for _ in range(count)]
                state = json.loads(json.dumps(items.state_dict()))
            try:
                found += ds.iterate(state=state)
            except ad.ResumeError:
                refused += 1
                continue
            assert sorted(item for item in found if item > 0) == list(range(1, 13))
        assert 0 < refused < 20


@pytest.mark.parametrize("count", range(1, 6))
def test_a_state_after_the_first_events_of_a_batch(count: int) -> None:
    with http(counting(20, 100, [])) as url:
        ds = ad.Dataset.from_http_stream(url).batch(count)
        with ds.iterate() as batches:
            found = next(batches).tolist()
            state = json.loads(json.dumps(batches.state_dict()))
        for batch in ds.iterate(state=state):
            found += batch.tolist()
    assert found == list(range(20))


@pytest.mark.parametrize("again", [b"", b"data: 0\n\n", b": x\n\ndata: 0\n\ndata: 0\n\n"])
def test_pings_take_the_place_of_no_event(again: bytes) -> None:
    """Pings have no ids and are not stored, so the server sends others, or none, when it is asked again."""
    pings = b"data: 0\n\n" * 3

    async def answer(headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        first = int(headers.get("last-event-id", -1)) + 1
        if first >= 12:
            writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            return
        writer.write(head("text/event-stream") + b"retry: 1\n\n" + again + events(range(first, first + 4)) + pings)

    with http(answer) as url:
        found = list(ad.Dataset.from_http_stream(url))
    assert [item for item in found if item] == list(range(1, 12))
    assert found[-4:] == [11, 0, 0, 0]


def test_events_without_an_id_that_differ_are_new() -> None:
    """They are not stored: what comes after a reconnection is not what came before it."""
    asked: list[str] = []

    async def answer(headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        asked.append(headers.get("last-event-id", ""))
        writer.write(head("text/event-stream") + b"retry: 1\n\n")
        writer.write(events([0]) if len(asked) == 1 else b"")
        writer.writelines(b"data: %d\n\n" % (100 * len(asked) + number) for number in range(3))

    with http(answer) as url:
        found = list(ad.Dataset.from_http_stream(url).take(10))
    assert found == [0, 100, 101, 102, 200, 201, 202, 300, 301, 302]
    assert asked[:3] == ["", "0", "0"]


def test_an_id_without_data_moves_the_place() -> None:
    asked: list[str] = []

    async def answer(headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        asked.append(headers.get("last-event-id", ""))
        if len(asked) == 1:
            writer.write(head("text/event-stream") + b"retry: 1\n\n" + events([1]) + b"id: 5\n\nid: 6\n\n")
        elif len(asked) == 2:
            writer.write(head("text/event-stream") + events([7]))
        else:
            writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")

    with http(answer) as url:
        assert list(ad.Dataset.from_http_stream(url)) == [1, 7]
    assert asked == ["", "6", "7"]


@pytest.mark.parametrize("answered", ["404 Not Found", "410 Gone"])
def test_a_server_that_says_that_it_does_not_know_the_id_is_an_error_after_all_before(answered: str) -> None:
    async def answer(headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        if "last-event-id" in headers:
            writer.write(f"HTTP/1.1 {answered}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        else:
            writer.write(head("text/event-stream") + b"retry: 1\n\n" + events(range(3)))

    with http(answer) as url:
        *found, error = results(ad.Dataset.from_http_stream(url))
    assert found == [0, 1, 2]
    assert isinstance(error, Failed)


def test_a_server_that_begins_anew_with_an_id_that_it_does_not_know_repeats_its_events() -> None:
    """What an id means is the server's: the client cannot know that events were given before."""

    async def answer(headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(head("text/event-stream") + b"retry: 1\n\n" + events(range(3)))

    with http(answer) as url:
        assert list(ad.Dataset.from_http_stream(url).take(7)) == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_headers_go_to_no_other_host(elsewhere: bool) -> None:
    secrets = {"Authorization": "Bearer x", "X-Api-Key": "k", "Cookie": "c=1", "Accept": "text/event-stream"}
    told: list[dict[str, str]] = []

    async def answer(headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        told.append(headers)
        if len(told) == 1:
            to = f"http://localhost:{url.partition('127.0.0.1:')[2]}" if elsewhere else "/other"
            writer.write(head("text/plain", "307 Temporary Redirect", f"Location: {to}\r\n"))
        else:
            writer.write(head("application/x-ndjson") + b"1\n")

    with http(answer) as url:
        assert list(ad.Dataset.from_http_stream(url, headers=secrets)) == [1]
    own = {"accept": "text/event-stream, application/x-ndjson"}
    sent = {name.lower(): value for name, value in secrets.items()}
    expected = [sent, own if elsewhere else sent]
    assert [{name: value for name, value in headers.items() if name in sent} for headers in told] == expected


@pytest.mark.parametrize("elsewhere", [False, True])
def test_headers_of_a_websocket_go_to_no_other_host(elsewhere: bool) -> None:
    told: list[str | None] = []

    async def talk(socket: Any) -> None:
        await socket.send("1")

    def redirect(connection: Any, request: Any) -> Any:
        told.append(request.headers.get("X-Api-Key"))
        if len(told) == 1:
            answer = connection.respond(302, "")
            answer.headers["Location"] = f"ws://localhost:{port}/other" if elsewhere else "/other"
            return answer
        return None

    with running(lambda: server.serve(talk, "127.0.0.1", 0, process_request=redirect)) as port:
        assert list(ad.Dataset.from_websocket(f"ws://127.0.0.1:{port}/", headers={"X-Api-Key": "k"})) == [1]
    assert told == ["k", None if elsewhere else "k"]


def test_servers_that_fail_for_a_while_are_asked_again() -> None:
    asked: list[str] = []

    async def answer(headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        asked.append(headers.get("last-event-id", ""))
        if len(asked) in (2, 3):
            writer.write(head("text/plain", "503 Service Unavailable", "Content-Length: 0\r\n"))
        elif len(asked) == 1:
            writer.write(head("text/event-stream") + b"retry: 1\n\n" + events([1]))
        else:
            writer.write(head("text/event-stream") + events([2]))

    with http(answer) as url, ad.Dataset.from_http_stream(url, decode=bytes).iterate() as items:
        assert [next(items), next(items)] == [b"1", b"2"]
    assert asked[:4] == ["", "1", "1", "1"]


@pytest.mark.parametrize(
    ("told", "error"),
    [
        (head("text/html", "404 Not Found"), ConnectionError),
        (head("text/html"), ValueError),
        (head("text/plain", "503 Service Unavailable", "Content-Length: 0\r\n"), ConnectionError),
        (b"", ConnectionError),
    ],
)
def test_what_is_no_stream_is_an_error(told: bytes, error: type[Exception]) -> None:
    async def answer(headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(told)

    with http(answer) as url:
        with pytest.raises(error, match="from_http_stream") as caught:
            list(ad.Dataset.from_http_stream(url))
        assert "secret" not in str(caught.value)


def test_nobody_there_is_an_error_at_once() -> None:
    for ds in (
        ad.Dataset.from_http_stream("http://127.0.0.1:9/"),
        ad.Dataset.from_websocket("ws://127.0.0.1:9/"),
    ):
        with pytest.raises(ConnectionError):
            list(ds)


def test_lines_end_with_their_body_and_one_that_is_wrong_fails_alone() -> None:
    body = b'{"x": 1}\n\n{"x": }\r\n3\n"four"'

    async def answer(headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        assert headers["authorization"] == "Bearer x"
        length = f"Content-Length: {len(body)}\r\n"
        writer.write(head("application/x-ndjson", more=length) + body[:20])
        await writer.drain()
        writer.write(body[20:])

    with http(answer) as url:
        found = results(ad.Dataset.from_http_stream(url, headers={"Authorization": "Bearer x"}))
    assert found[0] == {"x": 1}
    assert isinstance(found[1], Failed)
    assert found[2:] == [3, "four"]


def test_lines_that_break_off_are_an_error_and_have_no_states() -> None:
    async def answer(headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(head("application/x-ndjson", more="Content-Length: 100\r\n") + b"1\n2\n3")

    with http(answer) as url:
        ds = ad.Dataset.from_http_stream(url)
        with ds.iterate() as items:
            assert [next(items), next(items)] == [1, 2]
            state = items.state_dict()
            with pytest.raises(ConnectionError, match="broke off after 2 lines"):
                next(items)
            assert list(items) == []
        with pytest.raises(ad.ResumeError, match="no event had an id"):
            list(ds.iterate(state=state))


def test_a_connection_that_says_nothing_is_made_again() -> None:
    """Two seconds count as nothing here: a busy machine may let the server wait for a part of one."""
    asked: list[str] = []
    quiet = threading.Event()

    async def answer(headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        asked.append(headers.get("last-event-id", ""))
        writer.write(head("text/event-stream") + b"retry: 1\n\n" + events([int(asked[-1] or 0) + 1]))
        await writer.drain()
        if not asked[-1]:
            await asyncio.to_thread(quiet.wait, 60)

    with http(answer) as url, ad.Dataset.from_http_stream(url, idle_seconds=2).iterate() as items:
        assert [next(items), next(items)] == [1, 2]
        quiet.set()
    assert asked[:2] == ["", "1"]


def test_giving_up(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[str] = []

    async def answer(headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        asked.append("")
        if len(asked) == 1:
            writer.write(head("text/event-stream") + b"retry: 10\n\n" + events([1]))

    with http(answer) as url, ad.Dataset.from_http_stream(url, give_up_seconds=2).iterate() as items:
        assert next(items) == 1
        with pytest.raises(ConnectionError):
            next(items)
    assert "the connection broke" in caplog.text
    assert len(asked) > 1


def test_messages_of_a_websocket_until_it_is_closed() -> None:
    async def talk(socket: Any) -> None:
        wanted = json.loads(await socket.recv())
        for number in range(wanted["from"], wanted["from"] + 3):
            await socket.send(json.dumps({"n": number}))
        await socket.send(b"\x01")

    with running(lambda: server.serve(talk, "127.0.0.1", 0)) as port:
        ds = ad.Dataset.from_websocket(f"ws://127.0.0.1:{port}/", subscribe='{"from": 4}')
        assert list(ds) == [{"n": 4}, {"n": 5}, {"n": 6}, b"\x01"]
        assert len(list(ds.map(type))) == 4


def test_a_websocket_that_breaks_is_asked_for_what_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncdata.web.reconnecting.FIRST_SECONDS", 0.001)

    async def talk(socket: Any) -> None:
        first = int(await socket.recv())
        for number in range(first, min(first + 4, 10)):
            await socket.send(str(number))
        if first + 4 < 10:
            socket.transport.abort() if first else await socket.close(1011)

    with running(lambda: server.serve(talk, "127.0.0.1", 0)) as port:
        after = lambda last: str(0 if last is None else last + 1)  # noqa: E731
        ds = ad.Dataset.from_websocket(f"ws://127.0.0.1:{port}/", subscribe=after)
        assert list(ds) == list(range(10))
        with ds.iterate() as items:
            next(items)
            state = items.state_dict()
        with pytest.raises(ad.ResumeError, match="does not store its messages"):
            list(ds.iterate(state=state))


def test_a_message_that_is_too_long_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncdata.web.websocket_stream.MESSAGE_BYTES", 100)

    async def talk(socket: Any) -> None:
        await socket.send("1")
        await socket.send(f'"{"x" * 200}"')
        await socket.wait_closed()

    with running(lambda: server.serve(talk, "127.0.0.1", 0)) as port:
        items = iter(ad.Dataset.from_websocket(f"ws://127.0.0.1:{port}/"))
        assert next(items) == 1
        with pytest.raises(ad.DataLossError, match="message 1 has more than 100 bytes"):
            next(items)


def test_wrong_arguments() -> None:
    for wrong in ("ftp://x", 3, b"http://x"):
        with pytest.raises(ad.PlanError, match="needs a URL"):
            ad.Dataset.from_http_stream(wrong)  # type: ignore[arg-type]
        with pytest.raises(ad.PlanError, match="needs a URL"):
            ad.Dataset.from_websocket(wrong)  # type: ignore[arg-type]
    with pytest.raises(ad.PlanError, match="idle_seconds"):
        ad.Dataset.from_http_stream("http://x", idle_seconds=0)
    with pytest.raises(ad.PlanError, match="subscribe"):
        ad.Dataset.from_websocket("ws://x", subscribe=3)  # type: ignore[arg-type]
