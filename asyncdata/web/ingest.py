"""ingest_app: an ASGI application that takes data in by HTTP and WebSocket, and hands it to a channel."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from asyncdata.runtime.optional_packages import require
from asyncdata.web.admission import Authenticate
from asyncdata.web.channel_writers import AnyChannel, writer_of
from asyncdata.web.consumer import Consumer
from asyncdata.web.decoding import Decode
from asyncdata.web.http import Ingest, Limits
from asyncdata.web.monitoring import Health, Metrics
from asyncdata.web.openapi import OpenApi
from asyncdata.web.websocket import IngestSocket

__all__ = ("ingest_app",)


def ingest_app(
    channel: AnyChannel,
    decode: Decode | None = None,
    *,
    max_body_bytes: int = 16 << 20,
    max_item_bytes: int = 16 << 20,
    body_seconds: float = 30.0,
    receiving_bytes: int = 64 << 20,
    authenticate: Authenticate | None = None,
    consumer: Consumer | None = None,
) -> Any:
    """Return an ASGI application that puts what is posted to `/ingest` into a channel.

    Mount it in FastAPI or Starlette, or run it with uvicorn. The body is JSON (of an array each element is an item),
    NDJSON (an item in each line), MessagePack or, as `application/octet-stream`, one item of bytes. `decode` makes an
    item of its bytes instead: of a line, or of the body. All items of a request are taken, or none. `?version=7` says
    which policy or model made them.

    A `DurableChannel` has the body on the disk, as it came, before the reply; `from_channel(path, decode=)` makes its
    items, and `decode` here only refuses what is malformed. A request with an `Idempotency-Key` that was taken before
    is answered with `"duplicate": true` and not taken again, so a client that got no reply sends it once more. Of a
    `DurableChannel` keys outlive the process.

    `authenticate`, plain or `async`, is given the headers of a request, by lower-case name, and says whether it may be
    served; 401 if not. Without it only clients on this machine (loopback) are served, and others get 403.

    Too much at once is refused, and a client sends it again: 413 for a body of more than `max_body_bytes` or an item of
    more than `max_item_bytes`, 408 for one that takes longer than `body_seconds`, 429 where the channel is full, 503
    where it is closed or the bodies that are being received hold more than `receiving_bytes`. The application closes
    the channel when it is shut down.

    Each message of a WebSocket to `/ingest` is taken as a request is, and acknowledged in its turn: text is NDJSON,
    bytes are of `?content_type=`. Message n has the idempotency key `KEY/n` with `?key=KEY`, and a client that comes
    again tells by `?first=n` where it goes on. `/health` says whether all is well, `/metrics` tells Prometheus how much
    was taken, and `/openapi.json` what is taken and answered.

    With a `consumer` the application also starts what reads the channel, and lets it end when it is shut down.

    >>> import asyncdata as ad
    >>> app = ad.web.ingest_app(ad.Channel())  # doctest: +SKIP
    """
    writer = writer_of(channel)
    applications = require("starlette.applications", "ingest_app", "'asyncdata[web]'")
    routing = require("starlette.routing", "ingest_app", "'asyncdata[web]'")
    limits = Limits(max_body_bytes, max_item_bytes, body_seconds, max(receiving_bytes, max_body_bytes))
    ingest = Ingest(writer, decode, limits, authenticate)

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncGenerator[None, None]:
        async with AsyncExitStack() as stack:
            if consumer is not None:
                await stack.enter_async_context(consumer)
            await stack.enter_async_context(channel)
            yield

    routes = [
        routing.Route("/ingest", ingest, methods=["POST"]),
        routing.WebSocketRoute("/ingest", IngestSocket(ingest)),
        routing.Route("/health", Health(channel, consumer), methods=["GET"]),
        routing.Route("/metrics", Metrics(channel, ingest), methods=["GET"]),
        routing.Route("/openapi.json", OpenApi(), methods=["GET"]),
    ]
    return applications.Starlette(routes=routes, lifespan=lifespan)
