"""What stands between a source and its server in tests: a proxy that breaks connections, and a clock for pauses."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import socket
import ssl
import struct
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

__all__ = ("Gate", "SaslGate", "virtual_pauses")


class Gate:
    """A TCP proxy in front of a server: it counts the connections, breaks them off and refuses new ones."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self.connections = 0
        """How many were made, the refused ones included."""
        self.is_open = True
        self.loop: Any = None
        self.handling: set[asyncio.Task[None]] = set()
        """The tasks of connections. `asyncio.Server` loses those that it has just accepted when it is closed."""

    @classmethod
    @contextmanager
    def before(cls, port: int, tls: ssl.SSLContext | None = None) -> Iterator[Gate]:
        """Run a gate before a port of this machine, which speaks TLS to clients if there is a context for that."""
        gate, ready, stop = cls(port), threading.Event(), asyncio.Event()

        async def body() -> None:
            gate.loop = asyncio.get_running_loop()
            with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
                listening.setblocking(False)
                gate.port = listening.getsockname()[1]
                gate.loop.add_reader(listening, gate.accept, listening, tls)
                ready.set()
                await stop.wait()
                gate.loop.remove_reader(listening)
            await gate.drop()

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
        asyncio.run_coroutine_threadsafe(self.drop(), self.loop).result()

    def close(self) -> None:
        """Break off all connections; from now on new ones are accepted and broken off at once."""
        self.is_open = False
        self.break_off()

    def open(self) -> None:
        """Let connections pass again."""
        self.is_open = True

    async def drop(self) -> None:
        for task in self.handling:
            task.cancel()
        if self.handling:
            await asyncio.wait(self.handling)

    def accept(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        with suppress(OSError):  # the client has gone again
            accepted, _ = listening.accept()
            task = asyncio.ensure_future(self.handle(accepted, tls))
            self.handling.add(task)
            task.add_done_callback(self.handling.discard)
            task.add_done_callback(lambda _: accepted.close())  # it may be cancelled before it begins

    async def handle(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Pass on what comes from both sides."""
        self.connections += 1
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        both: list[asyncio.StreamWriter] = []
        try:
            transport, _ = await self.loop.connect_accepted_socket(lambda: protocol, accepted, ssl=tls)
            both.append(writer := asyncio.StreamWriter(transport, protocol, reader, self.loop))
            if self.is_open:
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
                both.append(far_writer)
                await self.welcome(reader, writer, far_reader, far_writer)
                await asyncio.gather(passed(reader, far_writer), passed(far_reader, writer), return_exceptions=True)
                await asyncio.gather(*[one.wait_closed() for one in both], return_exceptions=True)
        except OSError:
            pass
        finally:
            for one in both:
                one.transport.abort()

    async def welcome(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        """Do what comes before all that is passed on; `OSError` refuses the client."""


class SaslGate(Gate):
    """One that asks clients of a Kafka broker who they are (SASL), which the broker cannot do."""

    async def welcome(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        asking = as_plain()
        while True:
            request = await frame(reader)
            kind, _, number, name = struct.unpack_from(">hhih", request)
            content = request[10 + max(name, 0) :]
            if kind == 17:  # SaslHandshake
                asking = MECHANISMS[content[2:].decode()]()
                next(asking)
                writer.write(framed(struct.pack(">ihi", number, 0, 1) + content))
            elif kind == 36:  # SaslAuthenticate
                answer: bytes | None
                try:
                    answer, more = asking.send(content[4:]), True
                except StopIteration as end:
                    answer, more = end.value, False
                reply = struct.pack(">ihhi", number, 58 if answer is None else 0, -1, len(answer or b""))
                writer.write(framed(reply + (answer or b"") + bytes(8)))
                if answer is None:
                    raise OSError
                if not more:
                    return
            else:  # ApiVersions: which versions of these the client may use
                far_writer.write(framed(request))
                writer.write(framed(await frame(far_reader)))


Asking = Generator[bytes, bytes, bytes | None]
"""Gets what a client says and gives answers; returns the last one, `None` for a client that is not known."""


def as_plain() -> Asking:
    said = yield b""
    return b"" if said.split(b"\0")[1:] == [b"alice", b"secret"] else None


def as_token() -> Asking:
    said = yield b""
    return b"" if said.split(b"\1")[1] == b"auth=Bearer secret" else None


def as_scram() -> Asking:
    """SCRAM-SHA-256 (RFC 5802), in which no password is sent."""

    def keyed(key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, "sha256")

    first = (yield b"").removeprefix(b"n,,")
    challenge = b"%sgate,s=%s,i=4096" % (first[first.index(b"r=") :], base64.b64encode(b"salt"))
    last, _, proof = (yield challenge).rpartition(b",p=")
    salted, said = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 4096), b",".join([first, challenge, last])
    key = keyed(salted, b"Client Key")
    mask = keyed(hashlib.sha256(key).digest(), said)
    if bytes(one ^ other for one, other in zip(key, mask, strict=True)) != base64.b64decode(proof):
        return None
    return b"v=" + base64.b64encode(keyed(keyed(salted, b"Server Key"), said))


MECHANISMS = {"PLAIN": as_plain, "OAUTHBEARER": as_token, "SCRAM-SHA-256": as_scram}


async def frame(reader: asyncio.StreamReader) -> bytes:
    """Read a message of Kafka's protocol."""
    try:
        return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    except asyncio.IncompleteReadError:
        raise OSError from None


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


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
