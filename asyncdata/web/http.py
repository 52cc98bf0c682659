"""POST requests to an ingest application: their items go into a channel, all or none, and the reply says so.

From there `received.py`, or `stored.py` if the channel is on disk, makes elements of them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

from asyncdata.errors import ChannelFull, ClosedError, PlanError
from asyncdata.web.admission import Authenticate, admit
from asyncdata.web.begun import Begun
from asyncdata.web.channel_writers import ChannelWriter, Payload
from asyncdata.web.decoding import BodyDecoder, BodyError, Decode, InvalidItemError, UndecodableError, format_of
from asyncdata.web.idempotency import KeyReusedError
from asyncdata.web.lag import AdmissionEndedError
from asyncdata.web.leases import Leases
from asyncdata.web.multipart import is_multipart, uploaded_file
from asyncdata.web.schema import Schema
from asyncdata.web.unpacking import EncodingError, Unpacker, unpacker_for

__all__ = (
    "JSON",
    "KEY_BYTES",
    "Counts",
    "Header",
    "Ingest",
    "Limits",
    "Message",
    "Receive",
    "Send",
    "advice",
    "checked_key",
    "headers_of",
    "query_of",
    "refusal",
    "respond",
    "version_of",
)

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

Header: TypeAlias = tuple[bytes, bytes]

RETRY: Final[Header] = (b"retry-after", b"1")
JSON: Final[Header] = (b"content-type", b"application/json")
CLOSE: Final[Header] = (b"connection", b"close")

KEY_BYTES: Final = 1024
"""The most bytes of an idempotency key."""

VERSION: Final = re.compile(r"-?[0-9]{1,18}")

log = logging.getLogger("asyncdata")

DRAIN_BYTES: Final = 16 << 20
DRAIN_SECONDS: Final = 1.0
"""How much is read of a body after it was refused, so that its client comes to read the reply."""

REPLY_SECONDS: Final = 10.0
"""How long a server may take for a part of a reply: some wait for ever for a client that has gone."""


@dataclass(frozen=True)
class Limits:
    """Limits of one request, and of all that are received at once."""

    body_bytes: int
    item_bytes: int
    body_seconds: float
    receiving_bytes: int = 64 << 20


@dataclass
class Counts:
    """What an application has accepted and refused since it was started."""

    requests: dict[int, int] = field(default_factory=dict[int, int])
    """The number of requests, and of messages of WebSockets, by the status of the reply."""
    items: int = 0
    bytes: int = 0
    duplicates: int = 0
    sockets: int = 0
    """WebSockets that are open."""

    def answered(self, status: int) -> None:
        """Count one more request."""
        self.requests[status] = self.requests.get(status, 0) + 1


class Ingest:
    """The endpoint that receives requests: an ASGI application."""

    def __init__(
        self,
        writer: ChannelWriter,
        decode: Decode | Schema | None,
        limits: Limits,
        authenticate: Authenticate | None = None,
        leases: Leases | None = None,
    ) -> None:
        self.writer = writer
        self.decode = decode
        self.limits = limits
        self.authenticate = authenticate
        self.leases = Leases() if leases is None else leases
        self.counts = Counts()
        self.receiving = 0
        """Bytes of bodies that are being received."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        body = RequestBody(receive)
        more: list[Header] = []
        try:
            await admit(self.authenticate, scope, headers)
            status, reply = 200, await self.take(scope, headers, body)
        except (BodyError, ChannelFull, ClosedError) as error:
            status, reply = refusal(error)
            more += advice(error, status)
        self.counts.answered(status)
        if body.more:
            more.append(CLOSE)
        with suppress(OSError) if body.gone else nullcontext():  # applications around this one expect a reply
            await reply_to(send, status, reply, more, body)

    async def take(self, scope: Message, headers: Mapping[str, str], body: RequestBody) -> dict[str, Any]:
        """Put the items of a request into the channel, and return the reply."""
        body.length = length_of(scope, headers.get("content-length"), self.limits.body_bytes)
        unpacker = unpacker_for(headers.get("content-encoding", ""), self.limits.body_bytes)
        content_type, key = headers.get("content-type", ""), key_of(headers)
        version = version_of(query_of(scope))
        upload = is_multipart(content_type)
        reader = self.decoder("application/json" if upload else content_type)
        try:
            with self.leases.using(headers.get("admission"), version) as admission:
                data, decoder = await self.read(body, unpacker, reader), reader
                if upload:
                    content_type, data = uploaded_file(content_type, data)
                    decoder = self.decoder(content_type)
                    decoder.feed(data)
                items = decoder.finish()
                return await self.put(Payload(content_type, data, items, self.decode, key, version, admission))
        finally:
            self.receiving -= reader.size

    def decoder(self, content_type: str) -> BodyDecoder:
        """Return what decodes a body."""
        return BodyDecoder(format_of(content_type), self.decode, self.limits.body_bytes, self.limits.item_bytes)

    async def read(self, body: RequestBody, unpacker: Unpacker | None, decoder: BodyDecoder) -> bytes:
        """Read, unpack and decode a body to its end, and return its bytes."""
        parts: list[bytes] = []
        try:
            # most bodies are there when their request is: they need no deadline, which takes as long as to decode them
            async with nullcontext() if body.is_complete() else asyncio.timeout(self.limits.body_seconds):
                while body.more:
                    data = await body.next()
                    for part in (data,) if unpacker is None else unpacker.feed(data):
                        self.receiving += len(part)
                        decoder.feed(part)
                        self.check_receiving()
                        parts.append(part)
        except TimeoutError:
            raise BodyError(408, f"the body took more than {self.limits.body_seconds:g} s") from None
        if unpacker is not None:
            unpacker.finish()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def check_receiving(self) -> None:
        """Raise if the bodies that are being received take too much memory together."""
        if self.receiving > self.limits.receiving_bytes:
            raise BodyError(503, "too many bodies are being received; send it again later")

    async def put(self, payload: Payload) -> dict[str, Any]:
        """Put all items into the channel, and return the reply."""
        accepted = {"accepted": len(payload.items)}
        try:
            taken = not payload.items or await self.writer.put(payload)
        except KeyReusedError as error:
            raise BodyError(422, str(error)) from None
        except AdmissionEndedError:
            raise BodyError(409, "the admission is unknown here, has expired or was used") from None
        except PlanError as error:  # it would not fit into an empty one
            raise BodyError(413, str(error)) from None
        if not taken:
            self.counts.duplicates += 1
            return {**accepted, "duplicate": True}
        self.counts.items += len(payload.items)
        self.counts.bytes += len(payload.body)
        return accepted


class RequestBody:
    """The body of a request, part by part."""

    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self.more = True
        """Whether more parts may come."""
        self.gone = False
        """Whether the client has disconnected, and reads no reply."""
        self.length: int | None = None
        """How many bytes it has, if its client said so."""
        self.size = 0
        """How many have come."""
        self.begun: Begun[Message] | None = None
        """The call that receives the next part, if it was begun."""

    def is_complete(self) -> bool:
        """Begin to receive the next part, and return whether it is the last one and there; call `next` at once."""
        self.begun = Begun(self.receive())
        return self.begun.done and not (self.begun.value or {}).get("more_body", False)

    async def next(self) -> bytes:
        """Return the next part; `BodyError` if the client disconnected before the end, or the server ended it there."""
        begun, self.begun = self.begun, None
        message = await (self.receive() if begun is None else begun)
        if message["type"] == "http.disconnect":
            self.more, self.gone = False, True
            raise BodyError(400, "the client disconnected before the end of the body")
        self.more, part = message.get("more_body", False), message.get("body", b"")
        self.size += len(part)
        if not self.more and self.size < (self.length or 0):  # not if it is longer: something may have unpacked it
            self.gone = True
            raise BodyError(400, f"the body ended after {self.size} bytes of {self.length}, as Content-Length says")
        return part

    async def drain(self) -> None:
        """Read some of a refused body: if the connection is closed before that, the reply is lost on its way."""
        left = DRAIN_BYTES
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while self.more and left > 0:
                    left -= len(await self.next())
        except (TimeoutError, BodyError):
            return


def length_of(scope: Message, length: str | None, most: int) -> int | None:
    """Return the length of a body, if its client says it; raise if it is too large, no number, or must be said."""
    if length is None:
        if scope.get("http_version") == "2" and "granian" in sys.modules:
            raise BodyError(411, "send Content-Length: without it this server cannot tell where an HTTP/2 body was cut")
        return None
    if not length.isdecimal() or len(length) > 18:
        raise BodyError(400, f"Content-Length should be a number, got {length!r:.80}")
    if int(length) > most:
        raise BodyError(413, f"the body has more than {most} bytes; send it in parts")
    return int(length)


def key_of(headers: Mapping[str, str]) -> str | None:
    """Return the idempotency key, with or without the quotes of the standard."""
    header = headers.get("idempotency-key")
    if header is None:
        return None
    return checked_key(
        "Idempotency-Key", header[1:-1] if len(header) > 1 and header[0] == header[-1] == '"' else header
    )


def checked_key(name: str, key: str, most: int = KEY_BYTES) -> str:
    """Return an idempotency key, which a channel remembers; raise for one that is empty or too long."""
    size = len(key.encode())
    if not 0 < size <= most:
        raise BodyError(400, f"{name} must have 1 to {most} bytes, got {size}")
    return key


def query_of(scope: Message) -> dict[str, str]:
    """Return the fields of a query, the last one of each name; raise for what is not UTF-8."""
    query: bytes = scope.get("query_string", b"")
    if not query:
        return {}
    try:
        return dict(parse_qsl(query.decode(), keep_blank_values=True, errors="strict"))
    except UnicodeDecodeError:
        raise BodyError(400, "the query of the URL must be UTF-8, percent-encoded") from None


def version_of(query: Mapping[str, str]) -> int | None:
    """Return the version in a query."""
    version = query.get("version")
    if version is None:
        return None
    if not VERSION.fullmatch(version):
        raise BodyError(400, f"?version= must be an integer of at most 18 digits, got {version!r:.80}")
    return int(version)


def refusal(error: Exception) -> tuple[int, dict[str, Any]]:
    """Return the status and the reply for a refused request.

    It has nothing of what the server's operator should know and its clients should not: that is logged.
    """
    if isinstance(error, UndecodableError):
        log.warning("a request was refused: %.300r", str(error))
        return error.status, {"error": error.reply, "accepted": 0, "line": error.line}
    if isinstance(error, BodyError):
        details = error.details if isinstance(error, InvalidItemError) else None
        return error.status, {"error": str(error), "accepted": 0, "line": error.line, "detail": details}
    if isinstance(error, ChannelFull):
        return 429, {"error": "the channel is full; send the request again later", "accepted": 0}
    log.warning("a request was refused: %.300r", str(error))
    return 503, {"error": "the channel is closed; send the request again later", "accepted": 0}


def advice(error: Exception, status: int) -> list[Header]:
    """Return the headers that say what a client can do about a refusal."""
    if isinstance(error, EncodingError):
        return [(b"accept-encoding", error.accepted.encode())]
    return [RETRY] if status in (429, 503) else []


def headers_of(scope: Message) -> dict[str, str]:
    """Return the headers of a request, by lower-case name; values of the same name are joined by a comma."""
    found: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        found[name] = f"{found[name]}{'; ' if name == 'cookie' else ', '}{value}" if name in found else value
    return found


async def reply_to(send: Send, status: int, reply: dict[str, Any], headers: list[Header], body: RequestBody) -> None:
    """Send a reply of JSON, and end it when the client has had time to read it."""
    content = (
        b'{"accepted": %d}' % reply["accepted"]  # in a tenth of the time
        if reply.keys() == {"accepted"}
        else json.dumps({name: value for name, value in reply.items() if value is not None}).encode()
    )
    await respond(send, status, content, [JSON, *headers], body.more)
    if body.more:
        await body.drain()
        await pass_on(send, {"type": "http.response.body"})


async def respond(send: Send, status: int, content: bytes, headers: list[Header], more: bool = False) -> None:
    """Send a reply, all but its end if there is `more` to do before that."""
    all_headers = [(b"content-length", str(len(content)).encode()), *headers]
    await pass_on(send, {"type": "http.response.start", "status": status, "headers": all_headers})
    await pass_on(send, {"type": "http.response.body", "body": content, "more_body": more})


async def pass_on(send: Send, message: Message) -> None:
    """Send a part of a reply; `TimeoutError` if the server does not take it in time."""
    begun = Begun(send(message))
    if not begun.done:  # most servers take it at once: they need no deadline
        try:
            async with asyncio.timeout(REPLY_SECONDS):
                await begun
        except TimeoutError:
            raise TimeoutError(f"the client has gone, or has read no reply for {REPLY_SECONDS:g} s") from None
