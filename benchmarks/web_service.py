"""The services that benchmarks/web.py measures: each runs in a process of its own and prints its port.

    python benchmarks/web_service.py KIND FOLDER EXPECTED

`POST /ingest` takes NDJSON. `GET /cpu` answers when EXPECTED items have come out of the pipeline, if the service has
one, with the seconds of processor time since `GET /begin`; `GET /lag` with the lags of the event loop since
`GET /begin?lag`; `GET /memory` with the bytes of its memory. It takes as many connections as the system lets it.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import asyncdata as ad

__all__ = ("BATCH", "burn", "pipeline")

BATCH = 250
TICK = 0.005
PATIENCE = 600
"""Seconds for a connection that does nothing: a busy machine takes its time."""
MEASURES = ("begin", "cpu", "lag", "memory")


class Item(TypedDict):
    """An item where its type is declared."""

    t: float
    x: float
    y: float
    label: int


class Progress:
    """How many items have come out of the pipeline, and how late the event loop was."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.count = 0
        self.begun = 0.0
        self.lags: list[float] = []
        self.done = threading.Event()
        self.watching: Any = None

    def consume(self, batches: Any) -> None:
        for batch in batches:
            self.add(len(batch["x"]))

    def add(self, count: int) -> None:
        self.count += count
        if self.count >= self.expected:
            self.done.set()

    async def begin(self, request: Request) -> JSONResponse:
        """Measure from here on; the event loop's lag if `?lag` says so."""
        self.lags.clear()
        if "lag" in request.query_params:
            self.watching = asyncio.create_task(self.watch())
        self.begun = time.process_time()
        return JSONResponse({})

    async def cpu(self, request: Request) -> JSONResponse:
        if not self.done.is_set():
            await asyncio.to_thread(self.done.wait)
        return JSONResponse(time.process_time() - self.begun)

    async def lag(self, request: Request) -> JSONResponse:
        self.watching.cancel()
        return JSONResponse(self.lags)

    async def memory(self, request: Request) -> JSONResponse:
        return JSONResponse(resident())

    async def watch(self) -> None:
        """Note how late the loop wakes, without the time for which its thread was ready and had no core."""
        loop, waited = asyncio.get_running_loop(), waited_for_core()
        while True:
            due = loop.time() + TICK
            await asyncio.sleep(TICK)
            late, before = loop.time() - due, waited
            waited = waited_for_core()
            self.lags.append(late - (waited - before))


def resident() -> int:
    """Return how many bytes of memory this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def waited_for_core() -> float:
    """Return for how many seconds this thread has been ready and had no core."""
    return int(Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text().split()[1]) / 1e9


def burn(item: dict[str, Any]) -> dict[str, Any]:
    """A function in pure Python, of about 0.5 ms."""
    total = 0
    for number in range(20_000):
        total += number
    return item


def pipeline(channel: Any, kind: str) -> ad.Dataset[Any]:
    """The pipeline of a kind of service; those for the event loop's lag run `burn` for each item."""
    ds = ad.Dataset.from_channel(channel, schema=Item if "columns" in kind else None)
    if kind in ("engine", "other process"):
        ds = ds.map(burn)
    if kind == "threads":
        ds = ds.map(burn, num_parallel_calls=2)
    return ds.batch(BATCH)


def by_hand(kind: str, progress: Progress) -> Callable[[Request], Any]:
    """A handler as one writes it: it throws the body away, or decodes it and stacks what was collected."""
    decoder, waiting = msgspec.json.Decoder(), list[dict[str, float]]()

    async def ingest(request: Request) -> JSONResponse:
        body = await request.body()
        if kind == "discard":
            return JSONResponse({"accepted": 0})
        items = decoder.decode_lines(body)
        waiting.extend(items)
        while len(waiting) >= BATCH:
            some = waiting[:BATCH]
            del waiting[:BATCH]
            batch = {name: np.array([item[name] for item in some]) for name in some[0]}
            progress.add(len(batch["x"]))
        return JSONResponse({"accepted": len(items)})

    return ingest


def service(kind: str, folder: str, expected: int) -> Any:
    """Return the application of a kind, below that which measures it."""
    progress = Progress(expected)
    if kind in ("discard", "hand"):
        if kind == "discard":
            progress.done.set()
        app: Any = Starlette(routes=[Route("/ingest", by_hand(kind, progress), methods=["POST"])])
    else:
        durable = kind in ("durable", "durable columns", "other process")
        channel = ad.DurableChannel(folder) if durable else ad.Channel(max_items=1 << 20, max_bytes=1 << 30)
        consumed = kind not in ("idle", "other process")
        consumer = ad.web.Consumer(pipeline(channel, kind), progress.consume) if consumed else None
        schema = Item if "columns" in kind else None
        app = ad.web.ingest_app(channel, schema=schema, consumer=consumer, body_seconds=PATIENCE)
    measures = Starlette(routes=[Route(f"/{name}", getattr(progress, name)) for name in MEASURES])

    async def either(scope: Any, receive: Any, send: Any) -> None:
        await (measures if scope.get("path", "").removeprefix("/") in MEASURES else app)(scope, receive, send)

    return either


def main(kind: str, folder: str, expected: int) -> None:
    """Serve until stdin is closed."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    quiet: Any = {"log_level": "warning", "access_log": False, "timeout_keep_alive": PATIENCE}
    server = uvicorn.Server(uvicorn.Config(service(kind, folder, expected), **quiet))

    def stop() -> None:
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=stop, daemon=True).start()
    print(listening.getsockname()[1], flush=True)
    server.run([listening])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
