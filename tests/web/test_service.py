"""What an ingest application says of itself, and what it starts and ends."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.web import Consumer, ingest_app

pytestmark = [pytest.mark.web, pytest.mark.usefixtures("nothing_left")]

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

from tests.web.serving import served  # noqa: E402

BYTES = {"Content-Type": "application/octet-stream"}


@contextmanager
def client_of(app: Any) -> Iterator[Any]:
    with served(app) as url, httpx.Client(base_url=url, timeout=120) as client:
        yield client


def test_health_metrics_and_description(tmp_path: Path) -> None:
    for channel in (ad.Channel(), ad.DurableChannel(tmp_path)):
        with client_of(ingest_app(channel)) as client:
            assert client.get("/health").json() == {"status": "ok"}
            for key in ("a", "a", "b"):
                client.post("/ingest", content=b"xyz", headers={**BYTES, "Idempotency-Key": key})
            client.post("/ingest", content=b"x")
            told = client.get("/metrics").text
            for line in (
                'asyncdata_ingest_requests_total{status="200"} 3',
                'asyncdata_ingest_requests_total{status="415"} 1',
                "asyncdata_ingest_items_total 2",
                "asyncdata_ingest_bytes_total 6",
                "asyncdata_ingest_duplicates_total 1",
                "asyncdata_ingest_receiving_bytes 0",
                "# TYPE asyncdata_channel_bytes gauge",
            ):
                assert line in told.splitlines()
            described = client.get("/openapi.json").json()
            assert [*described["paths"]] == ["/ingest", "/admit", "/admit/{id}", "/health", "/metrics"]
            channel.close()
            reply = client.get("/health")
            assert (reply.status_code, reply.json()["reason"]) == (503, "the channel is closed")


def test_metrics_are_for_whom_the_application_serves() -> None:
    with client_of(ingest_app(ad.Channel(), authenticate=lambda headers: "x-me" in headers)) as client:
        assert client.get("/metrics").status_code == 401
        assert client.get("/metrics", headers={"X-Me": "1"}).status_code == 200
        assert client.get("/health").status_code == 200


@pytest.mark.parametrize("is_async", [False, True])
def test_a_consumer_starts_and_drains_with_the_application(is_async: bool) -> None:
    channel, found = ad.Channel(), list[int]()
    go = threading.Event()

    def train(batches: Any) -> None:
        go.wait(120)
        for batch in batches:
            found.extend(batch.tolist())

    async def train_async(batches: Any) -> None:
        async for batch in batches:
            found.extend(batch.tolist())

    run = train_async if is_async else train
    consumer = Consumer(ad.Dataset.from_channel(channel).batch(7), run)
    with client_of(ingest_app(channel, consumer=consumer)) as client:
        for start in range(0, 100, 10):
            body = "\n".join(map(str, range(start, start + 10)))
            assert client.post("/ingest", content=body, headers={"Content-Type": "application/jsonl"}).is_success
        go.set()
    assert found == list(range(100))


def test_a_consumer_of_a_durable_channel_ends_at_once_and_goes_on_later(tmp_path: Path) -> None:
    saved: list[Any] = [None]
    found: list[bytes] = []
    some = threading.Semaphore(0)

    def train(items: Any) -> None:
        for item in items:
            found.append(item)
            saved[0] = items.state_dict()
            some.release()

    for start in (0, 5):
        channel = ad.DurableChannel(tmp_path)
        consumer = Consumer(ad.Dataset.from_channel(channel), train, state=saved[0])
        with client_of(ingest_app(channel, consumer=consumer)) as client:
            for number in range(start, start + 5):
                assert client.post("/ingest", content=b"%d" % number, headers=BYTES).is_success
            assert all(some.acquire(timeout=120) for _ in range(4))
    rest = list(ad.Dataset.from_channel(tmp_path, follow=False).iterate(state=saved[0]))
    assert found + rest == [b"%d" % number for number in range(10)]


def test_a_consumer_that_fails_is_seen(caplog: pytest.LogCaptureFixture) -> None:
    channel, failed = ad.Channel(), threading.Event()

    def train(items: Any) -> None:
        next(items)
        raise ValueError("no gradient")

    consumer = Consumer(ad.Dataset.from_channel(channel), train)

    async def serve() -> None:
        async with consumer, channel:
            await channel.send([1])
            while not consumer.ended:
                await asyncio.sleep(0)
            failed.set()

    with caplog.at_level(logging.ERROR, "asyncdata"), pytest.raises(ValueError, match="no gradient"):
        asyncio.run(serve())
    assert "the channel has no reader now" in caplog.text
    assert failed.is_set()


def test_health_tells_of_a_consumer_that_has_ended() -> None:
    channel = ad.Channel()
    consumer = Consumer(ad.Dataset.from_channel(channel), lambda items: None)
    with client_of(ingest_app(channel, consumer=consumer)) as client:
        while (reply := client.get("/health")).status_code == 200:
            pass
        assert reply.json() == {"status": "unavailable", "reason": "the consumer of the channel has ended"}


def test_a_consumer_that_takes_too_long_is_left(caplog: pytest.LogCaptureFixture) -> None:
    channel, entered = ad.Channel(), threading.Event()

    def slow(items: Any) -> None:
        for _ in items:
            entered.set()
            threading.Event().wait(0.01)

    async def serve() -> None:
        async with Consumer(ad.Dataset.from_channel(channel), slow, drain_seconds=0.05), channel:
            await channel.send(range(1000))
            await asyncio.to_thread(entered.wait, 120)

    asyncio.run(serve())
    assert channel.stats()["items"] < 1000


def test_mounted_in_another_application(tmp_path: Path) -> None:
    applications = pytest.importorskip("starlette.applications")
    routing = pytest.importorskip("starlette.routing")
    channel, found = ad.Channel(), list[Any]()

    @asynccontextmanager
    async def lifespan(app: Any) -> Any:
        async with Consumer(ad.Dataset.from_channel(channel), found.extend), channel:
            yield

    app = applications.Starlette(routes=[routing.Mount("/data", ingest_app(channel))], lifespan=lifespan)
    with client_of(app) as client:
        assert client.post("/data/ingest", content=b"1", headers=BYTES).json() == {"accepted": 1}
        assert client.get("/data/health").json() == {"status": "ok"}
        assert json.loads(client.get("/data/openapi.json").text)["openapi"] == "3.1.0"
    assert found == [b"1"]


def seen_by(app: Any, **how: Any) -> tuple[list[dict[str, Any]], Any]:
    """Send an item to an application within this process; return what the server knows of requests, and the reply."""
    scopes: list[dict[str, Any]] = []

    async def noted(scope: dict[str, Any], receive: Any, send: Any) -> None:
        scopes.append(scope)
        await app(scope, receive, send)

    async def run() -> Any:
        transport = httpx.ASGITransport(noted, raise_app_exceptions=False, **how)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post("/ingest", content=b"1", headers=BYTES)

    return scopes, asyncio.run(run())


def test_items_are_not_routed_unless_the_user_has_added_something_to_the_application() -> None:
    channel = ad.Channel()
    (scope,), reply = seen_by(ingest_app(channel))
    assert (reply.json(), "router" in scope) == ({"accepted": 1}, False)

    def wrong(headers: Any) -> bool:
        raise KeyError("who")

    assert seen_by(ingest_app(channel, authenticate=wrong))[1].status_code == 500

    class Marked:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            scope["marked"] = True
            await self.app(scope, receive, send)

    app = ingest_app(channel)
    app.add_middleware(Marked)
    (scope,), reply = seen_by(app)
    assert (reply.json(), scope["marked"], "router" in scope) == ({"accepted": 1}, True, True)

    async def explain(request: Any, error: Exception) -> Any:
        return pytest.importorskip("starlette.responses").Response("mended", 503)

    app = ingest_app(channel, authenticate=wrong)
    app.add_exception_handler(KeyError, explain)
    assert (seen_by(app)[1].status_code, seen_by(app)[1].text) == (503, "mended")
    assert channel.stats()["sent"] == 2


def test_mounted_it_tells_of_the_consumer_that_the_outer_application_runs() -> None:
    applications = pytest.importorskip("starlette.applications")
    routing = pytest.importorskip("starlette.routing")
    channel = ad.Channel()
    consumer = Consumer(ad.Dataset.from_channel(channel), lambda items: None)

    @asynccontextmanager
    async def lifespan(app: Any) -> Any:
        async with consumer, channel:
            yield

    mount = routing.Mount("/data", ingest_app(channel, consumer=consumer))
    with client_of(applications.Starlette(routes=[mount], lifespan=lifespan)) as client:
        while (reply := client.get("/data/health")).status_code == 200:
            pass
        assert reply.json() == {"status": "unavailable", "reason": "the consumer of the channel has ended"}
        assert "asyncdata_consumer_failed_total 0" in client.get("/data/metrics").text


@pytest.mark.parametrize("parser", ["h11", "httptools"])
def test_a_client_that_leaves_in_its_body_leaves_no_traceback(parser: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Below a middleware that expects a reply to each request."""
    applications = pytest.importorskip("starlette.applications")
    base = pytest.importorskip("starlette.middleware.base")
    routing = pytest.importorskip("starlette.routing")
    pytest.importorskip(parser)
    passed = threading.Semaphore(0)

    async def dispatch(request: Any, call_next: Any) -> Any:
        try:
            return await call_next(request)
        finally:
            passed.release()

    channel = ad.Channel()
    app = applications.Starlette(routes=[routing.Mount("/", ingest_app(channel, max_body_bytes=5000))])
    app.add_middleware(base.BaseHTTPMiddleware, dispatch=dispatch)
    with served(app, http=parser) as url:
        port = int(url.rpartition(":")[2])
        for length in (100, 1_000_000):  # the second one is refused, and its client leaves before the end too
            with socket.create_connection(("127.0.0.1", port)) as client:
                lines = ("POST /ingest HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {length}")
                head = "\r\n".join([*lines, "Content-Type: application/octet-stream", "", ""])
                client.sendall(head.encode() + b"x" * 50)
            assert passed.acquire(timeout=120)
        with httpx.Client(base_url=url, timeout=120) as client:
            assert client.post("/ingest", content=b"1", headers=BYTES).json() == {"accepted": 1}
    assert "Error" not in capfd.readouterr().err
    channel.close()
    assert list(ad.Dataset.from_channel(channel)) == [b"1"]
