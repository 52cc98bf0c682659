"""ingest_app: an ASGI application that takes data in by HTTP and hands it to a channel."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, TypeAlias

from asyncdata.errors import ChannelFull, ClosedError, PlanError
from asyncdata.runtime.optional_packages import require
from asyncdata.web.channel import Channel
from asyncdata.web.decoding import BodyDecoder, BodyError, Decode, format_of

__all__ = ("Limits", "ingest_app")

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Authenticate: TypeAlias = Callable[[Mapping[str, str]], bool]


@dataclass(frozen=True)
class Limits:
    """What a request may take."""

    body_bytes: int
    item_bytes: int
    body_seconds: float


def ingest_app(
    channel: Channel,
    decode: Decode | None = None,
    *,
    max_body_bytes: int = 16 << 20,
    max_item_bytes: int = 16 << 20,
    body_seconds: float = 30.0,
    authenticate: Authenticate | None = None,
) -> Any:
    """Return an ASGI application that puts what is posted to `/ingest` into a channel.

    Mount it in FastAPI or Starlette, or run it with uvicorn. The body is JSON (of an array each element is an item),
    NDJSON (an item in each line), MessagePack or, as `application/octet-stream`, one item of bytes. `decode` makes an
    item of its bytes instead: of a line, or of the body. All items of a request are taken, or none.

    `authenticate` is given the headers of a request, by lower-case name, and says whether it may be served; 401 if not.
    Without it only clients on this machine (loopback) are served, and others get 403.

    Too much at once is refused, and a client sends it again: 413 for a body of more than `max_body_bytes` or an item of
    more than `max_item_bytes`, 408 for one that takes longer than `body_seconds`, 429 where the channel is full, 503
    where it is closed. The application closes the channel when it is shut down.

    >>> import asyncdata as ad
    >>> app = ad.web.ingest_app(ad.Channel())  # doctest: +SKIP
    """
    if not isinstance(channel, Channel):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"ingest_app needs a Channel, got {channel!r:.80}")
    applications = require("starlette.applications", "ingest_app", "'asyncdata[web]'")
    routing = require("starlette.routing", "ingest_app", "'asyncdata[web]'")
    ingest = Ingest(channel, decode, Limits(max_body_bytes, max_item_bytes, body_seconds), authenticate)

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncGenerator[None, None]:
        async with channel:
            yield

    routes = [routing.Route("/ingest", ingest, methods=["POST"])]
    return applications.Starlette(routes=routes, lifespan=lifespan)


class Ingest:
    """The endpoint that takes requests: an ASGI application."""

    def __init__(
        self, channel: Channel, decode: Decode | None, limits: Limits, authenticate: Authenticate | None = None
    ) -> None:
        self.channel = channel
        self.decode = decode
        self.limits = limits
        self.authenticate = authenticate

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            self.admit(scope.get("client"), headers)
            status, reply = 200, await self.take(headers, receive)
        except BodyError as error:
            status, reply = error.status, {"error": str(error), "line": error.line, "accepted": 0}
        except ChannelFull as error:
            status, reply = 429, {"error": str(error), "accepted": 0}
        except ClosedError as error:
            status, reply = 503, {"error": str(error), "accepted": 0}
        more = [(b"retry-after", b"1")] if status in (429, 503) else []
        await respond(send, status, reply, more)

    def admit(self, client: Any, headers: Mapping[str, str]) -> None:
        """Raise unless a client may be served."""
        if self.authenticate is None and not is_loopback(client):
            raise BodyError(403, "only clients on this machine are served: ingest_app(authenticate=) admits others")
        if self.authenticate is not None and not self.authenticate(headers):
            raise BodyError(401, "the request is not authenticated")

    async def take(self, headers: dict[str, str], receive: Receive) -> dict[str, Any]:
        """Put the items of a request into the channel, and return what to say of it."""
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            raise BodyError(400, f"Content-Length should be a number, got {length!r:.80}")
        if int(length) > self.limits.body_bytes:
            raise BodyError(413, f"the body has more than {self.limits.body_bytes} bytes; send it in parts")
        form = format_of(headers.get("content-type", ""))
        decoder = BodyDecoder(form, self.decode, self.limits.body_bytes, self.limits.item_bytes)
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                await read(receive, decoder)
        except TimeoutError:
            raise BodyError(408, f"the body took more than {self.limits.body_seconds:g} s") from None
        items = decoder.finish()
        try:
            self.channel.send_nowait(items, nbytes=decoder.size)
        except PlanError as error:
            raise BodyError(413, str(error)) from None
        return {"accepted": len(items)}


def is_loopback(client: Any) -> bool:
    """Tell whether the client of an ASGI scope is on this machine; without an address it came by a local socket."""
    if client is None:
        return True
    try:
        return ip_address(client[0]).is_loopback
    except ValueError:
        return False


async def read(receive: Receive, decoder: BodyDecoder) -> None:
    """Read a body to its end."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BodyError(400, "the client left before the end of the body")
        decoder.feed(message.get("body", b""))
        more = message.get("more_body", False)


async def respond(send: Send, status: int, reply: dict[str, Any], headers: list[tuple[bytes, bytes]]) -> None:
    """Send a reply of JSON."""
    body = json.dumps({name: value for name, value in reply.items() if value is not None}).encode()
    told = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": body})
