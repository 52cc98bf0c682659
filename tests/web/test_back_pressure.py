"""A consumer that stops: memory stays as it is, producers are told or see a lag, and all arrives when it goes on."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.testing import virtual_time
from asyncdata.web import ingest_app
from tests.web.queue_servers import kafka_server, nats_server, redis_server

pytestmark = [pytest.mark.web, pytest.mark.usefixtures("nothing_left")]

httpx = pytest.importorskip("httpx")
pytest.importorskip("msgspec")
pytest.importorskip("uvicorn")
connect = pytest.importorskip("websockets.sync.client").connect

from tests.web.serving import served  # noqa: E402

COUNT, ITEM_BYTES = 150, 40_000
ROOM = 500_000
"""What a channel may hold, and a queue may be asked for at once: a twelfth of what is sent."""

NDJSON = {"Content-Type": "application/x-ndjson"}


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Check that no more memory is taken meanwhile."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size, f"{peak:,} bytes were taken"


def body_of(start: int, each: int) -> bytes:
    """Return so many items, one per line."""
    items = range(start, start + each)
    return b"\n".join(b'{"n": %d, "more": "%s"}' % (number, b"x" * ITEM_BYTES) for number in items)


async def post_all(client: Any, starts: Iterator[int], each: int, refused: Callable[[], None], pause: float) -> None:
    """Post items, again after so many times what the service says where it refuses them."""
    for start in starts:
        body = body_of(start, each)  # once, as the client's replies hold what was sent until they are collected
        while (reply := await client.post("/ingest", content=body, headers=NDJSON)).status_code != 200:
            assert reply.status_code == 429, reply.text
            refused()
            await asyncio.sleep(pause * float(reply.headers["Retry-After"]))


@pytest.mark.parametrize("each", [1, 5])
def test_posts_are_refused_while_a_consumer_stops_for_a_minute(each: int) -> None:
    """In virtual time."""
    channel, refusals, found = ad.Channel(max_bytes=ROOM), list[None](), list[int]()
    transport = httpx.ASGITransport(ingest_app(channel))

    async def train() -> None:
        async for item in ad.Dataset.from_channel(channel).prefetch(1).with_options(ad.Options(placement="current")):
            found.append(item["n"])
            if len(found) == 20:
                with at_most(8 * ROOM):
                    await asyncio.sleep(60)

    async def send() -> None:
        starts = iter(range(0, COUNT, each))
        async with channel, httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            sending = [post_all(client, starts, each, lambda: refusals.append(None), 1) for _ in range(4)]
            await asyncio.gather(*sending)

    async def both() -> None:
        await asyncio.gather(train(), send())

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        runner.run(both())
        assert runner.get_loop().time() >= 60
    assert sorted(found) == [*range(COUNT)]
    assert len(refusals) >= 4 * 50


def send_by_websocket(url: str, refused: Callable[[], None]) -> None:
    """Send items by messages; connect again, with those that were not accepted, where the channel is full."""
    sent = 0
    while sent < COUNT:
        with connect(f"{url.replace('http', 'ws')}/ingest?key=a&first={sent}") as socket:
            while sent < COUNT:
                socket.send(body_of(sent, 1).decode())
                reply = socket.recv()
                if '"accepted": 1' not in reply:
                    assert '"status": 429' in reply, reply
                    refused()
                    break
                sent += 1


def send_by_http(url: str, refused: Callable[[], None]) -> None:
    async def send() -> None:
        async with httpx.AsyncClient(base_url=url, timeout=120) as client:
            await post_all(client, iter(range(0, COUNT, 5)), 5, refused, 0)

    asyncio.run(send())


@pytest.mark.parametrize("kind", ["Channel", "DurableChannel"])
@pytest.mark.parametrize("send", [send_by_websocket, send_by_http])
def test_a_service_takes_no_more_memory_while_a_consumer_stops(
    send: Callable[[str, Callable[[], None]], None], kind: str, tmp_path: Path
) -> None:
    """Until the producer was refused three times."""
    durable = ad.DurableChannel(tmp_path, max_bytes=ROOM, segment_bytes=ROOM // 10)
    channel = durable if kind == "DurableChannel" else ad.Channel(max_bytes=ROOM)
    refusals, enough, found = list[None](), threading.Event(), list[int]()

    def refused() -> None:
        refusals.append(None)
        if len(refusals) == 3:
            enough.set()

    with served(ingest_app(channel)) as url, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send, url, refused)
        with ad.Dataset.from_channel(channel).prefetch(1).iterate() as items:
            while len(found) < COUNT:
                found.append(next(items)["n"])
                if len(found) == 5:
                    with at_most(8 * ROOM):
                        assert enough.wait(120)
                if channel is durable:
                    durable.trim(items.state_dict())
        sending.result()
    assert found == [*range(COUNT)]
    durable.close()


@contextmanager
def redis(folder: Path) -> Iterator[tuple[ad.Dataset[Any], Callable[[], None]]]:
    with redis_server(folder, counts=True) as server, pytest.importorskip("redis").Redis(port=server.port) as client:

        def send() -> None:
            for number in range(COUNT):
                client.xadd("items", {"value": body_of(number, 1)})

        url = f"redis://127.0.0.1:{server.port}"
        yield ad.Dataset.from_redis_stream(url, "items").map(lambda entry: entry["value"]), send


@contextmanager
def nats(folder: Path) -> Iterator[tuple[ad.Dataset[Any], Callable[[], None]]]:
    with nats_server(folder) as server:
        url = f"nats://127.0.0.1:{server.port}"

        async def publish(count: int) -> None:
            async with await pytest.importorskip("nats").connect(url) as connection:
                stream = connection.jetstream()
                await stream.add_stream(name="items", subjects=["items"])
                for number in range(count):
                    await stream.publish("items", body_of(number, 1))

        asyncio.run(publish(0))
        yield ad.Dataset.from_nats(url, "items"), lambda: asyncio.run(publish(COUNT))


@contextmanager
def kafka(folder: Path) -> Iterator[tuple[ad.Dataset[Any], Callable[[], None]]]:
    with kafka_server() as server:
        topic = server.topic(1)

        async def produce() -> None:
            async with pytest.importorskip("aiokafka").AIOKafkaProducer(bootstrap_servers=server.servers) as producer:
                for number in range(COUNT):
                    await producer.send_and_wait(topic, body_of(number, 1))

        ds = ad.Dataset.from_kafka(server.servers, topic, client={"max_partition_fetch_bytes": ROOM})
        yield ds.map(lambda record: record["value"]), lambda: asyncio.run(produce())


@contextmanager
def channel(folder: Path) -> Iterator[tuple[ad.Dataset[Any], Callable[[], None]]]:
    async def store(durable: ad.DurableChannel) -> None:
        for number in range(COUNT):
            await durable.send(body_of(number, 1))

    with ad.DurableChannel(folder / "spool") as durable:
        yield ad.Dataset.from_channel(durable.path), lambda: asyncio.run(store(durable))


@pytest.mark.parametrize("queue", [redis, nats, kafka, channel])
def test_a_pipeline_takes_no_more_memory_while_its_consumer_stops(
    queue: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until all was sent; the queue holds it."""
    monkeypatch.setattr("asyncdata.web.queue_reader.READ_BYTES", ROOM)
    with queue(tmp_path) as (ds, send), ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        with ds.map(lambda body: int(body[6 : body.index(b",")])).iterate() as items:
            found = [next(items)]
            with at_most(8 * ROOM):
                sending.result()
            found += [next(items) for _ in range(COUNT - 1)]
    assert found == [*range(COUNT)]


@pytest.mark.parametrize("queue", [redis, nats])
def test_large_messages_that_wait_are_read_a_few_at_a_time(
    queue: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncdata.web.queue_reader.READ_BYTES", 5 * ITEM_BYTES)
    with queue(tmp_path) as (ds, send):
        send()
        with ds.map(len).prefetch(1).iterate() as sizes:
            next(sizes)  # what is imported for it takes memory too
            with at_most(4 * ROOM):
                assert min(next(sizes) for _ in range(COUNT - 1)) > ITEM_BYTES
