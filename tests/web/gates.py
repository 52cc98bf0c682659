"""What stands between a source and its server in tests: a proxy that breaks connections, and a clock for pauses."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

__all__ = ("Gate", "virtual_pauses")


class Gate:
    """A TCP proxy in front of a server: it counts the connections, breaks them off and refuses new ones."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self.connections = 0
        """How many were made, the refused ones included."""
        self.is_open = True
        self.loop: Any = None
        self.writers: set[asyncio.StreamWriter] = set()
        self.handling: set[asyncio.Task[Any]] = set()
        """The tasks of connections."""

    @classmethod
    @contextmanager
    def before(cls, port: int, tls: ssl.SSLContext | None = None) -> Iterator[Gate]:
        """Run a gate before a port of this machine, which speaks TLS to clients if there is a context for that."""
        gate, ready, stop = cls(port), threading.Event(), asyncio.Event()

        async def body() -> None:
            gate.loop = asyncio.get_running_loop()
            async with await asyncio.start_server(gate.connected, "127.0.0.1", 0, ssl=tls) as server:
                gate.port = server.sockets[0].getsockname()[1]
                ready.set()
                await stop.wait()
                server.close()
                for _ in range(9):  # turns of the loop, until connections that were accepted are handled
                    await asyncio.sleep(0)
                gate.is_open = False
                gate.drop()
                while gate.handling:
                    await asyncio.wait(gate.handling)

        thread = threading.Thread(target=asyncio.run, args=(body(),))
        thread.start()
        assert ready.wait(120)
        try:
            yield gate
        finally:
            gate.loop.call_soon_threadsafe(stop.set)
            thread.join()

    def break_off(self) -> None:
        """Break off all connections."""
        asyncio.run_coroutine_threadsafe(self.dropped(), self.loop).result()

    def close(self) -> None:
        """Break off all connections; from now on new ones are accepted and broken off at once."""
        self.is_open = False
        self.break_off()

    def open(self) -> None:
        """Let connections pass again."""
        self.is_open = True

    async def dropped(self) -> None:
        self.drop()

    def drop(self) -> None:
        for writer in self.writers:
            writer.transport.abort()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.handling.add(task)
        try:
            await self.handle(reader, writer)
        finally:
            self.handling.remove(task)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what comes from both sides."""
        try:
            if not self.is_open:
                raise ConnectionError
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, far_writer}
        self.writers |= both
        if not self.is_open:
            self.drop()
        await asyncio.gather(passed(reader, far_writer), passed(far_reader, writer), return_exceptions=True)
        await asyncio.gather(*[one.wait_closed() for one in both], return_exceptions=True)
        self.writers -= both


async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes, to the end."""
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


@contextmanager
def virtual_pauses(patch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Have sources that reconnect pause in a time of their own, without waiting; the pauses are listed."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    loop = SimpleNamespace(time=lambda: sum(pauses))
    clock = SimpleNamespace(sleep=sleep, get_running_loop=lambda: loop)
    with patch.context() as patched:
        patched.setattr("asyncdata.web.reconnecting.asyncio", clock)
        yield pauses
