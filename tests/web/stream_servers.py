"""Servers for the contract: they stream integers by server-sent events, NDJSON or WebSocket, and can be restarted."""

from __future__ import annotations

import asyncio
import json
import threading
import zlib
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import suppress
from typing import Any

import pytest

__all__ = ("EventServer", "LineServer", "SocketServer", "StreamServer")


class StreamServer:
    """A list of integers on a port, from which each client reads; on a loop in a thread."""

    def __init__(self) -> None:
        self.items: list[int] = []
        self.port = 0
        self.start()

    def start(self) -> None:
        """Serve on the port that it had before, if it had one."""
        ready = threading.Event()
        self.thread = threading.Thread(target=asyncio.run, args=(self.run(ready),))
        self.thread.start()
        assert ready.wait(120)

    def kill(self) -> None:
        """Break all connections off, and end."""
        self.do(self.stop())
        self.thread.join()

    def send(self, numbers: Iterable[int]) -> None:
        self.do(self.add([*numbers]))

    def beat(self) -> None:
        """Send what is no item on all connections."""
        self.do(self.send_signs())

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result(120)

    async def run(self, ready: threading.Event) -> None:
        self.loop, self.stopping, self.grown = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self.open: set[Any] = set()
        async with await self.serve() as server:
            self.port = next(iter(server.sockets)).getsockname()[1]
            ready.set()
            await self.stopping.wait()

    async def stop(self) -> None:
        for one in self.open:
            one.transport.abort()
        self.stopping.set()
        self.grown.set()

    async def add(self, numbers: list[int]) -> None:
        self.items += numbers
        self.grown.set()
        self.grown = asyncio.Event()

    async def after(self, place: int, follow: bool) -> AsyncIterator[int]:
        """Yield the places of the items from one on, and wait for more."""
        while True:
            while place < len(self.items):
                yield place
                place += 1
            if not follow or self.stopping.is_set():
                return
            await self.grown.wait()

    async def serve(self) -> Any:
        raise NotImplementedError

    async def send_signs(self) -> None:
        raise NotImplementedError


class HttpServer(StreamServer):
    """A server of bodies that are written item by item; `/once` ends, `/moved` redirects."""

    sign = b""
    kind = ""
    ends = False
    """Whether the end of a body is the end of the items."""

    def __init__(self, compressed: bool = False) -> None:
        self.compressed = compressed
        super().__init__()

    async def serve(self) -> Any:
        return await asyncio.start_server(self.connected, "127.0.0.1", self.port)

    def written(self, data: bytes) -> bytes:
        """Return data as it is sent: each part is a gzip member of its own."""
        if not self.compressed:
            return data
        stream = zlib.compressobj(wbits=31)
        return stream.compress(data) + stream.flush()

    async def send_signs(self) -> None:
        for writer in self.open:
            writer.write(self.written(self.sign))
            await writer.drain()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines if line)
            path = first.split()[1]
            if path.startswith("/moved"):
                writer.write(reply("307 Temporary Redirect", f"Location: {path.removeprefix('/moved')}"))
            else:
                await self.answer(headers, path == "/", writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open.discard(writer)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def answer(self, headers: dict[str, str], follow: bool, writer: asyncio.StreamWriter) -> None:
        first = self.first(headers)
        if first >= len(self.items) and not follow and not self.ends:
            writer.write(reply("204 No Content"))
            return
        more = ["Content-Encoding: gzip"] if self.compressed else []
        writer.write(reply("200 OK", f"Content-Type: {self.kind}", *more))
        self.open.add(writer)
        async for place in self.after(first, follow):
            writer.write(self.written(self.item(place)))
            await writer.drain()

    def first(self, headers: dict[str, str]) -> int:
        """Return the place of the first item that is asked for."""
        return int(headers.get("last-event-id", -1)) + 1

    def item(self, place: int) -> bytes:
        raise NotImplementedError


def reply(status: str, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", "Connection: close", *headers, "", ""]).encode()


class EventServer(HttpServer):
    """Server-sent events, whose ids are their places."""

    sign = b": still here\n\n"
    kind = "text/event-stream"

    def item(self, place: int) -> bytes:
        return b"id: %d\ndata: %d\n\n" % (place, self.items[place])


class LineServer(HttpServer):
    """NDJSON."""

    sign = b"\n\n"
    kind = "application/x-ndjson"
    ends = True

    def item(self, place: int) -> bytes:
        return b"%d\n" % self.items[place]


class SocketServer(StreamServer):
    """A WebSocket, whose clients say from which place on they want the items."""

    async def serve(self) -> Any:
        server = pytest.importorskip("websockets.asyncio.server")
        return await server.serve(self.connected, "127.0.0.1", self.port, close_timeout=1)

    async def send_signs(self) -> None:
        for socket in self.open:
            await (await socket.ping())

    async def connected(self, socket: Any) -> None:
        asked = json.loads(await socket.recv())
        self.open.add(socket)
        try:
            async for place in self.after(asked["from"], asked["follow"]):
                await socket.send(json.dumps([place, self.items[place]]))
        finally:
            self.open.discard(socket)
