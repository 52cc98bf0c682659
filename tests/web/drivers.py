"""Drivers of the contract: queues and streams on real servers, channels, a list, and sources of a user's own."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pytest

import asyncdata as ad
from asyncdata.testing.sources import Ability, SourceDriver
from asyncdata.web.queued import Queued
from tests.ports import reserved_ports
from tests.queues import ListQueue
from tests.web.gates import Gate
from tests.web.queue_servers import KafkaServer, Server, kafka_server, nats_server, redis_server
from tests.web.stream_servers import EventServer, LineServer, SocketServer, StreamServer

__all__ = ("DRIVERS", "gated_kafka_driver")


class RedisDriver(SourceDriver):
    """Redis Streams."""

    can: ClassVar[frozenset[Ability]] = frozenset(
        {"again", "state", "follow", "remove", "count", "gaps", "renew", "restart", "beat"}
    )
    at_once = 1000

    def __init__(self, server: Server, gate: Gate) -> None:
        self.server = server
        self.gate = gate
        self.client = pytest.importorskip("redis").Redis(port=server.port)
        self.offsets: dict[int, bytes] = {}
        self.make()

    def make(self) -> None:
        self.client.xgroup_create("numbers", "nobody", "0", mkstream=True)

    def send(self, numbers: Iterable[int]) -> None:
        numbers = list(numbers)
        with self.client.pipeline() as pipe:
            for number in numbers:
                pipe.xadd("numbers", {"n": number})
            self.offsets.update(zip(numbers, pipe.execute(), strict=True))

    @property
    def address(self) -> list[str]:
        return ["from_redis_stream", f"redis://127.0.0.1:{self.gate.port}", "numbers"]

    def dataset(self, **how: Any) -> ad.Dataset[int]:
        ds = ad.Dataset.from_redis_stream(*self.address[1:], **{"follow": False, **how})
        return ds.map(lambda entry: int(entry["n"]))

    def following(self) -> ad.Dataset[int]:
        return self.dataset(follow=True)

    def remove(self, numbers: Iterable[int]) -> None:
        self.client.xdel("numbers", *[self.offsets[number] for number in numbers])

    def renew(self) -> None:
        self.client.delete("numbers")
        self.make()

    def restart(self) -> None:
        self.server.kill()
        self.server.start()

    def beat(self) -> None:
        with self.client.monitor() as seen:
            waits = (told for told in seen.listen() if "BLOCK" in told["command"])
            assert all(next(waits) for _ in range(2))  # the second one, after an empty answer to the first


class EarlierRedisDriver(RedisDriver):
    """Redis Streams of a server that does not count the entries, so that it may err on which were removed."""

    can: ClassVar[frozenset[Ability]] = frozenset({"again", "state", "follow", "renew", "restart", "beat"})


class NatsDriver(SourceDriver):
    """NATS JetStream."""

    can: ClassVar[frozenset[Ability]] = frozenset(
        {"again", "state", "follow", "remove", "count", "gaps", "renew", "restart", "beat"}
    )
    at_once = 1000

    def __init__(self, server: Server, gate: Gate) -> None:
        self.server = server
        self.gate = gate
        self.offsets: dict[int, int] = {}
        self.make()

    def make(self) -> None:
        self.run(self.made)

    async def made(self, stream: Any) -> Any:
        return await stream.add_stream(name="numbers", subjects=["numbers.*"])

    def run(self, work: Callable[[Any], Any]) -> None:
        async def body() -> None:
            connection = await pytest.importorskip("nats").connect(f"nats://127.0.0.1:{self.server.port}")
            try:
                await work(connection.jetstream())
            finally:
                await connection.close()

        asyncio.run(body())

    def send(self, numbers: Iterable[int]) -> None:
        async def work(stream: Any) -> None:
            for number in numbers:
                self.offsets[number] = (await stream.publish(f"numbers.{number % 2}", b"%d" % number)).seq

        self.run(work)

    @property
    def address(self) -> list[str]:
        return ["from_nats", f"nats://127.0.0.1:{self.gate.port}", "numbers"]

    def dataset(self, **how: Any) -> ad.Dataset[int]:
        return ad.Dataset.from_nats(*self.address[1:], **{"follow": False, **how}).map(int)

    def following(self) -> ad.Dataset[int]:
        return self.dataset(follow=True)

    def remove(self, numbers: Iterable[int]) -> None:
        async def work(stream: Any) -> None:
            if isinstance(numbers, range):  # all up to one of them, at once
                await stream.purge_stream("numbers", seq=self.offsets[numbers[-1]] + 1)
                return
            for number in numbers:
                await stream.delete_msg("numbers", self.offsets[number])

        self.run(work)

    def renew(self) -> None:
        async def work(stream: Any) -> None:
            await stream.delete_stream("numbers")
            while (await self.made(stream)).state.last_seq:  # the server found files that it was still deleting
                await stream.delete_stream("numbers")

        self.run(work)

    def restart(self) -> None:
        self.server.kill()
        self.server.start()

    def beat(self) -> None:
        async def body() -> None:
            async with await pytest.importorskip("nats").connect(f"nats://127.0.0.1:{self.server.port}") as connection:
                requests = await connection.subscribe("$JS.API.CONSUMER.MSG.NEXT.>")
                for _ in range(4):  # two for each wait
                    await requests.next_msg(timeout=60)

        asyncio.run(body())


class KafkaDriver(SourceDriver):
    """A topic of Kafka with one partition. This broker removes nothing, and forgets all when it is killed."""

    can: ClassVar[frozenset[Ability]] = frozenset({"again", "state", "follow", "beat"})
    at_once = 1000
    connections = 3
    """How many connections its client makes for one of other clients."""

    def __init__(self, server: KafkaServer, gate: Gate | None = None) -> None:
        self.server = server
        self.gate = gate
        self.topic = server.topic(1)

    def send(self, numbers: Iterable[int]) -> None:
        self.server.send(self.topic, numbers, 1)

    @property
    def address(self) -> list[str]:
        return ["from_kafka", self.server.servers, self.topic]

    def dataset(self, **how: Any) -> ad.Dataset[int]:
        ds = ad.Dataset.from_kafka(*self.address[1:], **{"follow": False, **how})
        return ds.map(lambda record: int(record["value"]))

    def following(self) -> ad.Dataset[int]:
        return self.dataset(follow=True)

    def beat(self) -> None:
        time.sleep(0.3)  # fetches that find nothing end by themselves after 0.1 s


class ListDriver(SourceDriver):
    """A queue that is a list."""

    can: ClassVar[frozenset[Ability]] = frozenset(
        {"again", "state", "follow", "remove", "count", "gaps", "renew", "beat"}
    )
    at_once = 7

    def __init__(self) -> None:
        self.queue = ListQueue((), self.at_once)
        self.offsets: dict[int, int] = {}

    def send(self, numbers: Iterable[int]) -> None:
        self.offsets.update((number, self.queue.send(number)) for number in numbers)

    def dataset(self) -> ad.Dataset[int]:
        return ad.Dataset(Queued(self.queue))

    def following(self) -> ad.Dataset[int]:
        self.queue.follow = True
        return self.dataset()

    def remove(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.queue.remove(self.offsets[number])

    def renew(self) -> None:
        self.queue.renew()

    def beat(self) -> None:
        self.queue.wake()


class MemoryChannelDriver(SourceDriver):
    """A channel in memory, of which each item is given once."""

    can: ClassVar[frozenset[Ability]] = frozenset({"follow"})

    def __init__(self) -> None:
        self.channel = ad.Channel(max_items=10_000)

    def send(self, numbers: Iterable[int]) -> None:
        self.channel.send_nowait(list(numbers))

    def dataset(self) -> ad.Dataset[int]:
        self.channel.close()
        return ad.Dataset.from_channel(self.channel)

    def following(self) -> ad.Dataset[int]:
        return ad.Dataset.from_channel(self.channel)


class DurableChannelDriver(SourceDriver):
    """A channel on disk."""

    can: ClassVar[frozenset[Ability]] = frozenset({"again", "state", "follow"})

    def __init__(self, folder: Path) -> None:
        self.path = folder / "spool"

    def send(self, numbers: Iterable[int]) -> None:
        async def work() -> None:
            async with ad.DurableChannel(self.path) as channel:
                for number in numbers:
                    await channel.send(b"%d" % number)

        asyncio.run(work())

    def dataset(self, **how: Any) -> ad.Dataset[int]:
        self.send([])  # a reader needs the folder
        return ad.Dataset.from_channel(self.path, decode=int, **{"follow": False, **how})

    def following(self) -> ad.Dataset[int]:
        return self.dataset(follow=True)


class Sent:
    """A user's own iterable, plain and asynchronous."""

    def __init__(self, items: list[int]) -> None:
        self.items = items

    def __iter__(self) -> SentItems:
        return SentItems(self.items)

    def __aiter__(self) -> SentItems:
        return SentItems(self.items)


class SentItems:
    """Its iterator, which has states."""

    def __init__(self, items: list[int]) -> None:
        self.items = items
        self.place = 0

    def __iter__(self) -> SentItems:
        return self

    def __next__(self) -> int:
        if self.place >= len(self.items):
            raise StopIteration
        self.place += 1
        return self.items[self.place - 1]

    def __aiter__(self) -> SentItems:
        return self

    async def __anext__(self) -> int:
        await asyncio.sleep(0)
        try:
            return next(self)
        except StopIteration:
            raise StopAsyncIteration from None

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]


class OwnDriver(SourceDriver):
    """A user's own iterable."""

    can: ClassVar[frozenset[Ability]] = frozenset({"again", "state"})

    def __init__(self) -> None:
        self.items: list[int] = []

    def send(self, numbers: Iterable[int]) -> None:
        self.items += numbers

    def dataset(self) -> ad.Dataset[int]:
        return ad.Dataset.from_generator(lambda: Sent(self.items))


class OwnAsyncDriver(OwnDriver):
    """A user's own async iterable."""

    def dataset(self) -> ad.Dataset[int]:
        return ad.Dataset.from_async_iterable(Sent(self.items))


class EventDriver(SourceDriver):
    """Server-sent events."""

    can: ClassVar[frozenset[Ability]] = frozenset({"again", "state", "follow", "restart", "beat"})

    def __init__(self, server: StreamServer, gate: Gate, path: str = "") -> None:
        self.server = server
        self.gate = gate
        self.path = path

    def send(self, numbers: Iterable[int]) -> None:
        self.server.send(numbers)

    def dataset(self, path: str = "/once") -> ad.Dataset[int]:
        return ad.Dataset.from_http_stream(f"http://127.0.0.1:{self.gate.port}{self.path}{path}")

    def following(self) -> ad.Dataset[int]:
        return self.dataset("/")

    def restart(self) -> None:
        self.server.kill()
        self.server.start()

    def beat(self) -> None:
        self.server.beat()


class LineDriver(EventDriver):
    """NDJSON over HTTP, which ends with its body."""

    can: ClassVar[frozenset[Ability]] = frozenset({"again", "follow", "beat"})


class SocketDriver(EventDriver):
    """A WebSocket, which is asked for what comes after the last message."""

    can: ClassVar[frozenset[Ability]] = frozenset({"again", "follow", "restart", "beat"})

    def dataset(self, path: str = "/once") -> ad.Dataset[int]:
        def subscribe(last: Any) -> str:
            return json.dumps({"from": 0 if last is None else last[0] + 1, "follow": path == "/"})

        ds = ad.Dataset.from_websocket(f"ws://127.0.0.1:{self.gate.port}/", subscribe=subscribe)
        return ds.map(lambda message: message[1])


def streams(
    make: Callable[[], StreamServer], kind: type[EventDriver], path: str = ""
) -> Callable[[Path], AbstractContextManager[SourceDriver]]:
    """Return a maker of a driver of a stream. Its sources reconnect at once."""

    @contextmanager
    def made(folder: Path) -> Iterator[SourceDriver]:
        pauses = {"FIRST_SECONDS": 0.001, "SHORTEST_SECONDS": 0.001}
        server = make()
        try:
            with mock.patch.multiple("asyncdata.web.reconnecting", **pauses), Gate.before(server.port) as gate:
                yield kind(server, gate, path)
        finally:
            server.kill()

    return made


@contextmanager
def redis_driver(folder: Path, kind: type[RedisDriver] = RedisDriver) -> Iterator[SourceDriver]:
    with (
        mock.patch("asyncdata.web.redis_stream.WAIT_SECONDS", 0.5),
        redis_server(folder, counts=kind is RedisDriver) as server,
        Gate.before(server.port) as gate,
    ):
        driver = kind(server, gate)
        yield driver
        driver.client.close()


@contextmanager
def nats_driver(folder: Path) -> Iterator[SourceDriver]:
    with (
        mock.patch("asyncdata.web.nats_stream.WAIT_SECONDS", 0.5),  # until it sees that the stream is another one
        nats_server(folder) as server,
        Gate.before(server.port) as gate,
    ):
        yield NatsDriver(server, gate)


@contextmanager
def kafka_driver(folder: Path) -> Iterator[SourceDriver]:
    with kafka_server() as server:
        yield KafkaDriver(server)


@contextmanager
def gated_kafka_driver(folder: Path) -> Iterator[SourceDriver]:
    with reserved_ports(1) as (port,), Gate.before(port) as gate:
        server = KafkaServer(port, gate.port)
        try:
            yield KafkaDriver(server, gate)
        finally:
            server.kill()


def plain(make: Callable[[], SourceDriver]) -> Callable[[Path], AbstractContextManager[SourceDriver]]:
    """Return a maker of a driver that needs nothing closed."""

    @contextmanager
    def made(folder: Path) -> Iterator[SourceDriver]:
        yield make()

    return made


@contextmanager
def durable_channel_driver(folder: Path) -> Iterator[SourceDriver]:
    yield DurableChannelDriver(folder)


DRIVERS: dict[str, tuple[type[SourceDriver], Callable[[Path], AbstractContextManager[SourceDriver]]]] = {
    "redis": (RedisDriver, redis_driver),
    "redis_6": (EarlierRedisDriver, partial(redis_driver, kind=EarlierRedisDriver)),
    "nats": (NatsDriver, nats_driver),
    "kafka": (KafkaDriver, kafka_driver),
    "list": (ListDriver, plain(ListDriver)),
    "memory_channel": (MemoryChannelDriver, plain(MemoryChannelDriver)),
    "durable_channel": (DurableChannelDriver, durable_channel_driver),
    "events": (EventDriver, streams(EventServer, EventDriver)),
    "events_compressed": (EventDriver, streams(partial(EventServer, True), EventDriver)),
    "events_redirected": (EventDriver, streams(EventServer, EventDriver, "/moved")),
    "lines": (LineDriver, streams(LineServer, LineDriver)),
    "lines_compressed": (LineDriver, streams(partial(LineServer, True), LineDriver)),
    "websocket": (SocketDriver, streams(SocketServer, SocketDriver)),
    "own": (OwnDriver, plain(OwnDriver)),
    "own_async": (OwnAsyncDriver, plain(OwnAsyncDriver)),
}
"""The drivers by their names: the class, and a function that runs one in a folder of its own."""
