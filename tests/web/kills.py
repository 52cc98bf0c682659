"""Services, trainers and brokers that are killed again and again, while numbers go through a queue.

    python -m tests.web.kills [KILLS [QUEUE ...]]        (pip install 'asyncdata[web-test,remote-test]')

For each queue, and each of the three that is killed: a service sends numbers and notes which were acknowledged, a
trainer trains on them in batches, keeps the bad ones, saves its state, removes from the queue what that does not need,
and shares its partitions among another number of readers now and then. At the end each number that was acknowledged
must have been trained on once, or be kept once as a bad one. The table has what was found.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Protocol

import pytest

import asyncdata as ad
from asyncdata.web.dead_letters import DeadLetters, Letter
from asyncdata.web.decoding import msgpack_decoder
from asyncdata.web.folder import ChannelFolder
from tests.ports import reserved_ports
from tests.web.killing import PROGRAMS, Service, begun
from tests.web.programs.numbers_sent import PARTITIONS, body_of, is_good
from tests.web.queue_servers import (
    KafkaServer,
    confluent_producer,
    mock_cluster,
    moto_server,
    nats_server,
    oldest_offset,
    redis_server,
)

__all__ = ("QUEUES", "UNKILLED", "VICTIMS", "Found", "kill")

VICTIMS = ("service", "trainer", "broker")

UNKILLED = [("trimmed", "broker")]
"""What cannot be killed and come again."""


class Killable(Protocol):
    """What is killed, and comes again."""

    def start(self) -> None: ...
    def kill(self) -> None: ...


class Program:
    """A program that writes a line for each step of its work, and goes on with it when it is started again."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments
        self.start()

    def start(self) -> None:
        self.process = begun(*self.arguments, stdout=-1)

    def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
            self.process.communicate()

    def work(self, steps: int) -> None:
        """Wait until it has worked for some steps."""
        assert self.process.stdout is not None
        for _ in range(steps):
            assert self.process.stdout.readline(), f"{self.arguments} ended"

    def finish(self, seconds: float) -> bool:
        """Wait for its end; return whether it came."""
        with suppress(subprocess.TimeoutExpired):
            self.process.communicate(timeout=seconds)
            assert self.process.returncode == 0, self.arguments
        return self.process.returncode is not None


@contextmanager
def redis(folder: Path) -> Iterator[tuple[Killable, list[Any], list[Any]]]:
    with redis_server(folder, counts=True) as server:
        yield server, [server.port], [server.port]


@contextmanager
def nats(folder: Path) -> Iterator[tuple[Killable, list[Any], list[Any]]]:
    async def make(port: int) -> None:
        async with await pytest.importorskip("nats").connect(f"nats://127.0.0.1:{port}") as connection:
            await connection.jetstream().add_stream(name="numbers", subjects=["numbers.*"])

    with nats_server(folder) as server:
        asyncio.run(make(server.port))
        yield server, [server.port], [server.port]


@contextmanager
def kafka(folder: Path) -> Iterator[tuple[Killable, list[Any], list[Any]]]:
    with reserved_ports(1) as (port,), moto_server("tansu") as environment:
        server = KafkaServer(port, storage="s3://tansu/", environment=environment)
        try:
            where = [server.servers, server.topic(PARTITIONS)]
            yield server, where, where
        finally:
            server.kill()


@contextmanager
def channel(folder: Path) -> Iterator[tuple[Killable, list[Any], list[Any]]]:
    with ad.DurableChannel(folder / "spool") as made:
        path = str(made.path)
    server = Service(folder / "spool")
    server.start()
    try:
        yield server, [server.url], [path]
    finally:
        server.stop()


@contextmanager
def trimmed(folder: Path) -> Iterator[tuple[Killable, list[Any], list[Any]]]:
    """A broker of Kafka that removes the oldest records, as retention does; it forgets all when it is killed."""
    with mock_cluster(1) as servers, confluent_producer(servers) as producer:
        producer.list_topics("numbers", timeout=60)  # which makes the topic
        where = [servers, "numbers", str(folder / "saved")]
        yield producer, where, where
        assert oldest_offset(servers) > 0, "nothing was removed"


QUEUES = {"kafka": kafka, "trimmed": trimmed, "redis": redis, "nats": nats, "channel": channel}
"""Each gives a broker, and the address that its service and its trainer are told."""


@dataclass
class Found:
    """What became of the numbers that were acknowledged."""

    acknowledged: int = 0
    good: int = 0
    bad: int = 0
    lost: list[Any] = field(default_factory=list)
    repeated: list[Any] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, expected: list[Any], got: list[Any]) -> int:
        """Compare what was expected once each with what was got; return how much that was."""
        self.lost += [one for one in expected if one not in set(got)]
        self.repeated += [one for one in set(got) if got.count(one) > 1 or one not in set(expected)]
        return len(got)


def kill(queue: str, victim: str, kills: int, folder: Path) -> Found:
    """Kill one of the three at random moments of its work, and return what was found in the end."""
    begin, notes, saved, kept = time.monotonic(), *(folder / name for name in ("notes", "saved", "kept"))
    with QUEUES[queue](folder) as (broker, to, where), ExitStack() as stack:
        training = (PROGRAMS / "training_service.py", queue, json.dumps(where), saved, kept)
        service = Program(PROGRAMS / "sending_service.py", queue, json.dumps(to), notes)
        stack.callback(service.kill)
        trainer = Program(*training)
        stack.callback(trainer.kill)
        victims: dict[str, Killable] = {"service": service, "trainer": trainer, "broker": broker}
        for _ in range(kills):
            (trainer if victim == "trainer" else service).work(random.randint(1, 30))
            victims[victim].kill()
            victims[victim].start()
        for program in (service, trainer):
            program.work(1)
        service.process.terminate()
        assert service.finish(60), "the service waits for a trainer that does not go on"
        trainer.kill()
        numbers = [int(line) for line in notes.read_text().split()]
        trainer = Program(*training, sum(map(is_good, numbers)))
        stack.callback(trainer.kill)
        trainer.finish(400)  # which does not come if something is lost
    found = Found(acknowledged=len(numbers))
    found.good = found.add([*filter(is_good, numbers)], json.loads(saved.read_text())["trained"])
    bad = [body_of(number) for number in numbers if not is_good(number)]
    found.bad = found.add(bad, kept_in(queue, kept, where[0]))
    found.seconds = time.monotonic() - begin
    return found


def kept_in(queue: str, kept: Path, where: str) -> list[bytes]:
    """Return the bad items that were kept, as they were sent."""
    letters = DeadLetters(ChannelFolder(where if queue == "channel" else kept)).content.waiting
    return [*map(body_in, letters)]


def body_in(letter: Letter) -> bytes:
    """Return what was sent, of an item that may be an entry or a record."""
    kind, body = letter.request()
    if kind != "application/msgpack":
        return body
    (item,) = msgpack_decoder().decode(body)
    return (item.get("n") or item["value"]).strip()


def main(kills: str = "20", *queues: str) -> int:
    """Print what was found, a line for each queue and what was killed."""
    print(f"{kills} kills each, seed of each run in front; Python {sys.version.split()[0]}, {os.cpu_count()} cores")
    wrong = 0
    for queue, victim in product(queues or QUEUES, VICTIMS):
        if (queue, victim) in UNKILLED:
            continue
        seed = random.randrange(1 << 30)
        random.seed(seed)
        with tempfile.TemporaryDirectory() as folder:
            found = kill(queue, victim, int(kills), Path(folder))
        wrong += len(found.lost) + len(found.repeated)
        print(
            f"{seed:<11}{queue:<9}{victim:<9}{found.acknowledged:>6} acknowledged, {found.good:>6} trained on, "
            f"{found.bad:>5} kept as bad, {len(found.lost)} lost, {len(found.repeated)} repeated, "
            f"{found.seconds:.0f} s",
            flush=True,
        )
    return wrong


if __name__ == "__main__":
    sys.exit(min(main(*sys.argv[1:]), 1))
