"""Servers of streams for tests, each on a loop in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ("Answer", "events", "head", "http", "running")

Answer = Callable[[dict[str, str], asyncio.StreamWriter], Awaitable[None]]


@contextmanager
def running(start: Callable[[], Awaitable[Any]]) -> Iterator[int]:
    """Run a server on a loop in a thread, and tell its port."""
    ready, port = threading.Event(), [0]

    async def body() -> None:
        stop = asyncio.Event()
        loops.append((asyncio.get_running_loop(), stop))
        async with await start() as running:
            port[0] = next(iter(running.sockets)).getsockname()[1]
            ready.set()
            await stop.wait()

    loops: list[Any] = []
    thread = threading.Thread(target=asyncio.run, args=(body(),))
    thread.start()
    assert ready.wait(120)
    try:
        yield port[0]
    finally:
        loop, stop = loops[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join()


@contextmanager
def http(answer: Answer) -> Iterator[str]:
    """A server that answers each request by a function of its headers, and then closes the connection."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
        try:
            await answer({line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in head}, writer)
            await writer.drain()
        finally:
            writer.close()

    with running(lambda: asyncio.start_server(connected, "127.0.0.1", 0)) as port:
        yield f"http://127.0.0.1:{port}/stream?secret=1"


def head(kind: str, status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n{more}\r\n".encode()


def events(numbers: Any) -> bytes:
    return b"".join(b"id: %d\ndata: %d\n\n" % (number, number) for number in numbers)
