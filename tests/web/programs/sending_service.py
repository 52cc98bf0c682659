"""Sends numbers to a queue, each once, and notes which were acknowledged; goes on where one was killed.

It ends when it is told to (SIGTERM), with good numbers in each partition.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from tests.web.programs.numbers_sent import PARTITIONS, body_of

PADDING = 100_000
UNREAD = 40
"""How many numbers may be unread: the broker keeps 5 MiB of a partition, which is about 50 of them."""

LEAST = {"trimmed": 200}
"""How many numbers are sent at least, so that some are removed."""

Send: TypeAlias = Callable[[int], Awaitable[None]]
"""Has a queue store a number, which it may have stored already; `OSError` if that is not known."""


@asynccontextmanager
async def redis(port: int) -> AsyncGenerator[Send]:
    import redis.asyncio as redis

    async def send(number: int) -> None:
        try:
            await client.xadd("numbers", {"n": body_of(number)}, id=f"{number + 1}-0")
        except redis.ResponseError as error:
            if "equal or smaller" not in str(error):  # it was stored before
                raise
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise OSError from error

    async with redis.Redis(port=port) as client:
        yield send


@asynccontextmanager
async def nats(port: int) -> AsyncGenerator[Send]:
    from nats import connect, errors

    async def told(error: Exception) -> None:
        """Say nothing of connections that break."""

    async def send(number: int) -> None:
        try:  # a message of the same id is stored once
            await stream.publish("numbers.0", body_of(number), timeout=1, headers={"Nats-Msg-Id": str(number)})
        except errors.Error as error:
            raise OSError from error

    options: dict[str, Any] = {"reconnect_time_wait": 0.02, "max_reconnect_attempts": -1, "error_cb": told}
    async with await connect(f"nats://127.0.0.1:{port}", **options) as connection:
        stream = connection.jetstream()
        yield send


class KafkaSender:
    """Produces without retries of its own, and reads whether a record is there where that is not known."""

    def __init__(self, servers: str, topic: str, padding: bytes = b"") -> None:
        self.padding = padding
        self.client = import_module("confluent_kafka")
        self.topic = topic
        how = {"bootstrap.servers": servers, "log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 50}
        self.producer = self.client.Producer({**how, "retries": 0, "message.timeout.ms": 60_000, "linger.ms": 0})
        once = {"group.id": "sender", "enable.auto.commit": False, "enable.partition.eof": True}
        once["auto.offset.reset"] = "earliest"
        self.reader = self.client.Consumer({**how, **once})
        self.behind: dict[int, int] = {}
        """The offsets behind what was found or acknowledged."""
        self.failed: Any = None

    def is_there(self, number: int) -> bool:
        """Read whether a number is among the last ones of its partition."""
        partition = number % PARTITIONS
        self.reader.assign([self.client.TopicPartition(self.topic, partition, self.behind.get(partition, 0))])
        while (record := self.reader.poll(60)) is not None:
            if record.error() is None:
                self.behind[partition] = record.offset() + 1
                if record.key() == b"%d" % number:
                    return True
            elif record.error().name() == "_PARTITION_EOF":
                break
        return False

    def told(self, error: Any, record: Any) -> None:
        self.failed = error
        if error is None:
            self.behind[record.partition()] = record.offset() + 1

    async def send(self, number: int) -> None:
        partition = number % PARTITIONS
        if (self.failed is not None or partition not in self.behind) and self.is_there(number):
            self.failed = None
            return
        self.producer.produce(
            self.topic, body_of(number) + self.padding, b"%d" % number, partition, on_delivery=self.told
        )
        self.producer.flush()
        if self.failed is not None:
            raise OSError(self.failed)


@asynccontextmanager
async def kafka(servers: str, topic: str) -> AsyncGenerator[Send]:
    await asyncio.sleep(0)
    sender = KafkaSender(servers, topic)
    yield sender.send
    sender.reader.close()


@asynccontextmanager
async def trimmed(servers: str, topic: str, saved: str) -> AsyncGenerator[Send]:
    """Send large records, of which the broker removes the oldest, not more than it keeps before they are trained on."""
    sender = KafkaSender(servers, topic, b" " * PADDING)

    async def send(number: int) -> None:
        done = len(json.loads(Path(saved).read_text())["trained"]) if Path(saved).exists() else 0
        if number > done * 10 // 8 + UNREAD:
            raise OSError("the trainer is behind")
        await sender.send(number)

    yield send
    sender.reader.close()


@asynccontextmanager
async def channel(url: str) -> AsyncGenerator[Send]:
    import httpx

    async def send(number: int) -> None:
        headers = {"Content-Type": "application/json", "Idempotency-Key": str(number)}
        try:
            reply = await client.post("/ingest", content=body_of(number), headers=headers)
        except httpx.TransportError as error:
            raise OSError from error
        reply.raise_for_status()

    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        yield send


QUEUES = {"redis": redis, "nats": nats, "kafka": kafka, "trimmed": trimmed, "channel": channel}


async def main(queue: str, address: str, notes: str) -> None:
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    number = len(Path(notes).read_text().splitlines()) if Path(notes).exists() else 0
    with open(notes, "a") as acknowledged:
        async with QUEUES[queue](*json.loads(address)) as send:
            while not (ending.is_set() and number % 10 == 3 and number > LEAST.get(queue, 0)):
                try:
                    await send(number)
                except OSError:
                    await asyncio.sleep(0.02)
                    continue
                acknowledged.write(f"{number}\n")
                acknowledged.flush()
                print(number, flush=True)
                number += 1
                await asyncio.sleep(0.01)  # so that there is work left when something is killed


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
