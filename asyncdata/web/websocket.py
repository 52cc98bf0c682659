"""WebSockets of an ingest application: each message is handled like a request, and acknowledged in order."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Coroutine, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, Final, final

from asyncdata.errors import ChannelFull, ClosedError
from asyncdata.web.admission import admit
from asyncdata.web.channel_writers import AnyChannel, Payload
from asyncdata.web.decoding import BodyDecoder, BodyError, format_of
from asyncdata.web.http import (
    JSON,
    KEY_BYTES,
    Ingest,
    Message,
    Receive,
    Send,
    checked_key,
    headers_of,
    query_of,
    refusal,
    version_of,
)
from asyncdata.web.socket_admission import Asking, asking_for

__all__ = ("IngestSocket",)

IN_FLIGHT: Final = 256
"""The most messages of a socket that are not acknowledged yet."""

NUMBER_BYTES: Final = 24
"""The space for the number of a message, which its idempotency key has at the end."""

REFUSED: Final = 1008
LATER: Final = 1013


@final
class IngestSocket:
    """The endpoint for WebSockets: an ASGI application."""

    def __init__(self, ingest: Ingest, channel: AnyChannel) -> None:
        self.ingest = ingest
        self.channel = channel

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        await receive()  # the request to connect
        try:
            await admit(self.ingest.authenticate, scope, headers_of(scope))
            query = query_of(scope)
            messages = Messages(self.ingest, query, asking_for(query, self.channel, self.ingest.leases))
        except BodyError as error:
            self.ingest.counts.answered(error.status)
            await refuse(scope, send, error)
            return
        await send({"type": "websocket.accept"})
        self.ingest.counts.sockets += 1
        try:
            await messages.take_all(receive, send)
        finally:
            self.ingest.counts.sockets -= 1
            messages.leave()


async def refuse(scope: Message, send: Send, error: BodyError) -> None:
    """Answer a request to connect by the status and reason of an error, if the server can; else close it."""
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": REFUSED, "reason": str(error)[:100]})
        return
    status, reply = refusal(error)
    content = json.dumps({"error": reply["error"]}).encode()
    headers = [(b"content-length", str(len(content)).encode()), JSON]
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": content})


@final
class Messages:
    """The messages of one socket: their type and number, and those that wait for their acknowledgement.

    They are handled in order, and the next one is begun before the last one is on the disk.
    """

    def __init__(self, ingest: Ingest, query: Mapping[str, str], asking: Asking | None) -> None:
        self.ingest = ingest
        self.asking = asking
        self.version = version_of(query)
        self.binary = query.get("content_type", "application/octet-stream")
        format_of(self.binary)
        self.key = checked_key("?key=", query["key"], KEY_BYTES - NUMBER_BYTES) if "key" in query else None
        self.number = number_of(query.get("first", "1")) - 1
        self.waiting: deque[asyncio.Task[Message]] = deque()
        self.space = asyncio.Semaphore(IN_FLIGHT)
        self.held = 0
        """Bytes of messages that are being handled."""
        self.refused = self.ended = False
        """Whether a message was refused that the client must repeat, with all after it; whether the client left."""

    async def take_all(self, receive: Receive, send: Send) -> None:
        """Accept and acknowledge messages, until the client leaves or must come again later."""
        more = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            receiving = group.create_task(self.receive_all(receive, group, more))
            await self.answer(send, more)
            receiving.cancel()
            self.leave()

    async def receive_all(self, receive: Receive, group: asyncio.TaskGroup, more: asyncio.Event) -> None:
        """Begin to handle each message as it comes."""
        while True:
            await self.space.acquire()
            message = await receive()
            if message["type"] != "websocket.receive":
                self.ended = True
                self.leave()
                more.set()
                return
            text: str | None = message.get("text")
            kind, data = (self.binary, message["bytes"]) if text is None else ("application/x-ndjson", text.encode())
            self.hold(len(data))
            task = group.create_task(self.answered(kind, data))
            task.add_done_callback(partial(self.release, len(data)))
            self.waiting.append(task)
            more.set()
            is_work = self.asking is not None and self.asking.name is not None
            if is_work or self.held > self.ingest.limits.body_bytes:
                await asyncio.wait([task])

    def leave(self) -> None:
        """End what the client has asked for and not used."""
        if self.asking is not None:
            self.asking.leave()

    def answered(self, kind: str, data: bytes) -> Coroutine[Any, Any, dict[str, Any]]:
        """Return what handles the next message."""
        if self.asking is not None and self.asking.name is None:
            return self.ask(self.asking, data)
        self.number += 1
        return self.take(kind, data, self.number)

    async def ask(self, asking: Asking, data: bytes) -> dict[str, Any]:
        """Wait for an admission, and return the reply."""
        try:
            return await asking.ask(data)
        except (BodyError, ClosedError) as error:
            status, reply = refusal(error)
            return {"error": reply["error"], "status": status}

    def hold(self, size: int) -> None:
        """Count the bytes of a message, until it is handled."""
        self.held += size
        self.ingest.receiving += size

    def release(self, size: int, _: object) -> None:
        """Do not count the bytes of a message any more."""
        self.hold(-size)

    async def take(self, kind: str, data: bytes, number: int) -> dict[str, Any]:
        """Put the items of a message into the channel, and return the reply."""
        limits = self.ingest.limits
        status = 200
        try:
            self.check_order()
            self.ingest.check_receiving()
            decoder = BodyDecoder(format_of(kind), self.ingest.decode, limits.body_bytes, limits.item_bytes)
            decoder.feed(data)
            key = None if self.key is None else f"{self.key}/{number}"
            with nullcontext() if self.asking is None else self.asking.using() as admission:
                payload = Payload(kind, data, decoder.finish(), self.ingest.decode, key, self.version, admission)
                reply = await self.ingest.put(payload)
        except (BodyError, ChannelFull, ClosedError) as error:
            status, reply = refusal(error)
            reply["status"] = status
            self.refused = self.refused or status in (429, 503)
        self.ingest.counts.answered(status)
        if self.asking is not None:
            self.asking.answered(status)
        return {"message": number, **reply}

    def check_order(self) -> None:
        """Raise if an earlier message was refused, so that this one would come before it."""
        if self.refused:
            raise BodyError(503, "a message before this one was refused; send it again, and then this one")

    async def answer(self, send: Send, more: asyncio.Event) -> None:
        """Acknowledge each message in order; handle all that were sent, even if the client has left."""
        left = False
        while True:
            while not self.waiting:
                if self.ended:
                    return
                more.clear()
                await more.wait()
            reply = await self.waiting.popleft()
            self.space.release()
            if left:
                continue
            fields = {name: value for name, value in reply.items() if value is not None}
            try:
                await send({"type": "websocket.send", "text": json.dumps(fields)})
                if reply.get("status") in (429, 503):
                    await send({"type": "websocket.close", "code": LATER, "reason": "try again later"})
                    return
            except (OSError, RuntimeError):
                left = True


def number_of(text: str) -> int:
    """Return the number of a client's first message."""
    if not text.isdecimal() or len(text) > 18:
        raise BodyError(400, f"?first= must be the number of the first message, got {text!r:.80}")
    return int(text)
