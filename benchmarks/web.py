"""What it costs to take data in: a real server against handlers written by hand, and the channels on their own.

    python benchmarks/web.py [--quick] [--json FILE]        (pip install 'asyncdata[web]' httptools)

The server is uvicorn in a process of its own; requests come over 16 connections from this one. Measured is the
server's processor time, from the request to the batch: what it does in a second depends on who has the cores. "Columns"
are channels whose items have a declared type of plain fields.
"Memory" is that of the server for each of 10,000 connections at once, which begin a request each, end it and stay.
"Lag" is how late the event loop of a service wakes, without the time for which it had no core.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import AtLeast, AtMost, Below, Report, Row, parse_arguments
from web_service import pipeline

import asyncdata as ad
from asyncdata.web import durable

__all__ = ("main",)

SERVICE = Path(__file__).with_name("web_service.py")
CONNECTIONS = 16
KINDS = ("discard", "hand", "channel", "columns", "durable", "durable columns")
GROUP = 100
WARM_UP = 1000


def item(number: int) -> bytes:
    return json.dumps({"t": number / 8, "x": 0.25, "y": -1.5, "label": number % 10}).encode()


def request(body: bytes) -> bytes:
    head = (
        f"POST /ingest HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nContent-Length: {len(body)}"
    )
    return head.encode() + b"\r\n\r\n" + body


@contextmanager
def served(kind: str, folder: str, expected: int) -> Iterator[int]:
    """Run a service; give its port."""
    command = [sys.executable, str(SERVICE), kind, folder, str(expected)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


class Connection:
    """One connection, on which one request is under way at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, message: bytes) -> bytes:
        """Send a request; return the body of its reply."""
        self.writer.write(message)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r")[0])
        body = await self.reader.readexactly(length)
        if b" 200 " not in head[:15]:
            raise RuntimeError(f"{head!r} {body!r}")
        return body

    async def get(self, path: str) -> Any:
        return json.loads(await self.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()))


async def load(port: int, first: Sequence[bytes], requests: Sequence[bytes]) -> float:
    """Send requests as fast as they are answered; return the processor time of the server but for the first ones."""
    control = await Connection.to(port)
    for message in first:
        await control.send(message)
    await control.get("/begin")
    waiting = iter(requests)

    async def send_some() -> None:
        connection = await Connection.to(port)
        for message in waiting:
            await connection.send(message)
        connection.writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(send_some())
    seconds = await control.get("/cpu")
    control.writer.close()
    return seconds


def post(kind: str, count: int, each: int) -> float:
    """Return the microseconds of the server's processor time for an item, of `count` in requests of `each`."""
    items = [item(number) for number in range(WARM_UP + count)]
    requests = [request(b"\n".join(items[start : start + each])) for start in range(0, len(items), each)]
    warm_up = WARM_UP // each
    with tempfile.TemporaryDirectory() as folder, served(kind, folder, len(items)) as port:
        return asyncio.run(load(port, requests[:warm_up], requests[warm_up:])) / count * 1e6


def bar_of(kind: str, each: int) -> AtMost | None:
    """Return the bar for requests of so many items each, against by hand."""
    if each == 1:
        return {"channel": AtMost(1.25), "columns": AtMost(1.25)}.get(kind, AtMost(2) if "durable" in kind else None)
    return {"channel": AtMost(2), "columns": AtMost(0.7) if each >= 1000 else None}.get(kind)


def posts(report: Report, rounds: int, count: int, each: int) -> None:
    """Compare the channels with handlers written by hand, in turns."""
    micros: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind in KINDS:
            micros[kind].append(post(kind, count, each))
    median = {kind: statistics.median(values) for kind, values in micros.items()}
    what = f"NDJSON x {each}" if each > 1 else "single POSTs"
    for kind in KINDS:
        name = {"discard": "body thrown away", "hand": "decoded and stacked by hand"}.get(kind, f"{kind} to batches")
        bar = bar_of(kind, each)
        against = {} if kind == "hand" else {"against": "by hand", "reference": median["hand"], "bar": bar}
        report.add(Row(f"{what}: {name}", median[kind], "us", samples={kind: micros[kind]}, **against))


def channel_alone(count: int, each: int) -> float:
    """Return the microseconds of processor time for an item through a Channel, both sides together."""
    channel = ad.Channel(max_items=100 * each)
    lists = [[*range(each)]] * (count // each)

    async def send() -> None:
        async with channel:
            for items in lists:
                await channel.send(items)

    sender = threading.Thread(target=lambda: asyncio.run(send()))
    before = time.process_time()
    sender.start()
    found = sum(1 for _ in ad.Dataset.from_channel(channel))
    sender.join()
    assert found == count
    return (time.process_time() - before) / count * 1e6


def stored(folder: Path, body: bytes, count: int) -> tuple[float, list[int]]:
    """Store requests of 16 posters; return the seconds, and the bytes of each group that was synced."""
    groups: list[int] = []
    append = durable.LogWriter.append

    def counted(self: Any, group: Any) -> None:
        groups.append(sum(len(one.frame) for one in group))
        append(self, group)

    async def send() -> float:
        async with ad.DurableChannel(folder, segment_bytes=1 << 40) as channel:
            await channel.send(body)
            groups.clear()
            start = time.perf_counter()

            async def poster() -> None:
                for _ in range(count // CONNECTIONS):
                    await channel.send(body)

            async with asyncio.TaskGroup() as group:
                for _ in range(CONNECTIONS):
                    group.create_task(poster())
            return time.perf_counter() - start

    durable.LogWriter.append = counted  # type: ignore[method-assign]
    try:
        return asyncio.run(send()), [size for size in groups if size]
    finally:
        durable.LogWriter.append = append  # type: ignore[method-assign]


def appended(path: Path, groups: list[int]) -> float:
    """Return the seconds of a bare loop that appends and syncs groups of these sizes."""
    data = memoryview(bytes(max(groups)))
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        start = time.perf_counter()
        for size in groups:
            os.write(file, data[:size])
            os.fdatasync(file)
        return time.perf_counter() - start
    finally:
        os.close(file)


def storing(report: Report, rounds: int, count: int) -> None:
    """Compare a DurableChannel with a bare loop that writes the same bytes in the same groups."""
    body = os.urandom(512).hex().encode() * GROUP  # 100 items of 1 KB
    ours, bare = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=os.getcwd()) as folder:
            seconds, groups = stored(Path(folder, "channel"), body, count)
            ours.append(seconds / count / GROUP * 1e6)
            bare.append(appended(Path(folder, "bare"), groups) / count / GROUP * 1e6)
    samples = {"DurableChannel": ours, "append + fdatasync": bare}
    name = f"DurableChannel, {CONNECTIONS} posters x {GROUP} of 1 KB"
    row = Row(name, statistics.median(ours), "us", "bare", statistics.median(bare), AtLeast(0.6), samples)
    report.add(row)


def spin() -> None:
    while True:
        pass


def train(folder: str) -> None:
    for _ in pipeline(folder, "other process"):
        pass


async def steady(port: int, seconds: float) -> list[float]:
    """Send 100 requests of 10 items a second; return the lags of the service's loop."""
    connection = await Connection.to(port)
    message = request(b"\n".join(map(item, range(10))))
    for _ in range(20):
        await connection.send(message)
    await connection.get("/begin?lag")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await connection.send(message)
        await asyncio.sleep(0.01)
    lags: list[float] = await connection.get("/lag")
    connection.writer.close()
    return lags


def lag(kind: str, seconds: float) -> float:
    """Return the 99th percentile of the lag of a service's event loop, in ms."""
    how = multiprocessing.get_context("spawn")
    server = "idle" if kind == "burning" else kind
    with tempfile.TemporaryDirectory() as folder, served(server, folder, 1 << 60) as port:
        beside = None
        if kind == "burning":
            beside = how.Process(target=spin)
        elif kind == "other process":
            beside = how.Process(target=train, args=(folder,))
        if beside is not None:
            beside.start()
        try:
            lags = asyncio.run(steady(port, seconds))
        finally:
            if beside is not None:
                beside.kill()
                beside.join()
    return statistics.quantiles(lags, n=100)[98] * 1e3


def lags(report: Report, rounds: int, seconds: float) -> None:
    """Compare where a pure-Python pipeline runs with a process that only burns beside the service."""
    kinds = {
        "burning": "no pipeline, a burning process beside it",
        "idle": "no pipeline",
        "other process": "pipeline in another process, by path",
        "threads": "pipeline in threads",
        "engine": "pipeline in the engine's thread",
    }
    millis: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind in kinds:
            millis[kind].append(lag(kind, seconds))
    control = statistics.median(millis["burning"])
    for kind, what in kinds.items():
        against = {} if kind == "burning" else {"against": "burning", "reference": control}
        bar = Below(2) if kind == "other process" else None
        samples = {kind: millis[kind]}
        report.add(Row(f"lag p99: {what}", statistics.median(millis[kind]), "ms", bar=bar, samples=samples, **against))


async def connect_many(port: int, count: int) -> dict[str, float]:
    """Begin and end a request on each of many connections; return the server's memory for one, in KB."""
    control = await Connection.to(port)
    body = b"\n".join(map(item, range(10)))
    message = request(body)
    first, rest = message[:-100], message[-100:]
    for _ in range(20):
        await control.send(message)
    before = await control.get("/memory")
    found: list[Connection] = []
    while len(found) < count:
        found += await asyncio.gather(*[Connection.to(port) for _ in range(min(100, count - len(found)))])
        for connection in found[-100:]:
            connection.writer.write(first)
    expected = f"asyncdata_ingest_receiving_bytes {count * (len(body) - 100)}".encode()
    while expected not in await control.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"):  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    sending = await control.get("/memory") - before
    await asyncio.gather(*[connection.send(rest) for connection in found])
    resting = await control.get("/memory") - before
    for connection in (*found, control):
        connection.writer.close()
    return {"in the middle of a body": sending / count / 1e3, "after a request": resting / count / 1e3}


def connections(report: Report, count: int) -> None:
    """Have many connections at once, each with a request that was begun."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    count = min(count, most - 100)
    with tempfile.TemporaryDirectory() as folder, served("channel", folder, 1 << 60) as port:
        for when, size in asyncio.run(connect_many(port, count)).items():
            report.add(Row(f"memory of one of {count} connections, {when}", size, "KB", "bar", 32, AtMost(1)))


def main() -> None:
    """Measure all of it."""
    arguments = parse_arguments(__doc__ or "")
    report = Report("Data from services into batches, microseconds for an item")
    rounds, part = arguments.rounds(5), 20 if arguments.quick else 1
    posts(report, rounds, 100_000 // part, 1000)
    posts(report, rounds, 100_000 // part, 100)
    posts(report, rounds, 10_000 // part, 1)
    for each in (100, 1):
        micros = [channel_alone(2000 * each // part if each > 1 else 20_000 // part, each) for _ in range(rounds)]
        limit = {"against": "bar", "reference": 1.5, "bar": AtMost(1)} if each > 1 else {}
        name = f"Channel alone, lists of {each}"
        report.add(Row(name, statistics.median(micros), "us", samples={"Channel": micros}, **limit))
    connections(report, 10_000 // part)
    storing(report, rounds, 1600 // part)
    lags(report, arguments.rounds(3), 0.5 if arguments.quick else 5)
    report.finish(arguments.json)


if __name__ == "__main__":
    main()
