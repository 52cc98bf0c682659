"""ingest_app: an ASGI application, which passes POST requests to `http` and WebSockets to `websocket`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, cast

from asyncdata.errors import PlanError
from asyncdata.graph.node import check_count
from asyncdata.system.optional_packages import require
from asyncdata.web.admission import Authenticate
from asyncdata.web.admitting import Admit
from asyncdata.web.channel_writers import AnyChannel, writer_of
from asyncdata.web.consumer import Consumer
from asyncdata.web.decoding import Decode
from asyncdata.web.http import Ingest, Limits, Message, Receive, Send
from asyncdata.web.leases import Leases
from asyncdata.web.monitoring import Health, Metrics
from asyncdata.web.openapi import OpenApi
from asyncdata.web.sources import maker_for, seconds_for
from asyncdata.web.websocket import IngestSocket

__all__ = ("application", "ingest_app")


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
    schema: Any = None,
    admission_seconds: float = 60.0,
) -> Any:
    """Return an ASGI application that puts what is posted to `/ingest` into a channel.

    Mount it in FastAPI or Starlette, or run it with uvicorn. The body is JSON (each element of an array is an item),
    NDJSON (one item per line), MessagePack or, as `application/octet-stream`, one item of bytes. `decode` makes an
    item from its bytes instead: from a line, or from the body. Either all items of a request are accepted, or none.
    `?version=7` says which policy or model made them. `Content-Encoding` may be one of gzip, deflate, br and zstd (with
    their packages); limits count the bytes of the unpacked body.

    `schema`, a pydantic model, msgspec Struct, dataclass or TypedDict, is the type of an item. A body with an item that
    is not of this type is refused by 422, and the reply names the line and the fields: `detail` is as FastAPI's. A
    `Channel` gets items of this type; with a `DurableChannel` give `from_channel(path, schema=)` the same one.

    A `DurableChannel` has the body on the disk, as it came, before the reply. There `decode` only refuses malformed
    bodies, and `from_channel(path, decode=)` makes the items. A request whose `Idempotency-Key` was accepted before is
    not accepted again, and the reply has `"duplicate": true`. So a client that got no reply can repeat a request. The
    keys of a `DurableChannel` outlive the process.

    `authenticate`, plain or `async`, gets the headers of a request, by lower-case name, and returns whether to serve
    it; if not, the reply is 401. Without it only clients on this machine (loopback) are served, and others get 403.

    Other refusals: 415 for another type or encoding, 413 for a body of more than `max_body_bytes` or an item of more
    than `max_item_bytes`, 411 for a body of HTTP/2 without `Content-Length` on granian, 408 for a body that takes
    longer than `body_seconds`, 429 if the channel is full, and 503 if it is closed or the bodies that are being
    received have more than `receiving_bytes` together. After 429 and 503 a client sends the request again.
    The application closes the channel when it is shut down.

    Each message of a WebSocket to `/ingest` is handled like a request, and acknowledged in order. Text is NDJSON; bytes
    have the type `?content_type=`. With `?key=KEY` message n has the idempotency key `KEY/n`, and a client that
    reconnects gives by `?first=n` the number of its first message. `/health` says whether items are accepted and read,
    `/metrics` has counts for Prometheus, and `/openapi.json` describes requests and replies.

    If the channel has `max_lag`, producers ask by `POST /admit?version=7` before they work. The reply has the id of an
    admission, which `POST /ingest` gives in the header `Admission`. It ends with an accepted request, by
    `DELETE /admit/ID`, or `admission_seconds` after the last request with it. On a WebSocket with `?admit=1` a message
    `{"version": 7}` asks, and the next one is sent with the admission.

    With a `consumer` the application also runs the reader of the channel, and ends it when it is shut down. Mounted in
    another application, whose lifespan runs the consumer, it says in `/health` and `/metrics` how the consumer is.

    >>> import asyncdata as ad
    >>> app = ad.web.ingest_app(ad.Channel())  # doctest: +SKIP
    >>> [route.path for route in app.routes]  # doctest: +SKIP
    ['/ingest', '/ingest', '/admit', '/admit/{id}', '/health', '/metrics', '/openapi.json']
    """
    writer = writer_of(channel)
    make = maker_for("ingest_app", decode, schema)
    if not (authenticate is None or callable(authenticate)):
        raise PlanError(f"ingest_app(authenticate=) must be a function of headers, got {authenticate!r:.80}")
    limits = Limits(
        check_count("ingest_app", "max_body_bytes", max_body_bytes, 1),
        check_count("ingest_app", "max_item_bytes", max_item_bytes, 1),
        seconds_for("ingest_app", "body_seconds", body_seconds),
        max(check_count("ingest_app", "receiving_bytes", receiving_bytes, 1), max_body_bytes),
    )
    leases = Leases(seconds_for("ingest_app", "admission_seconds", admission_seconds))
    return application(channel, Ingest(writer, make, limits, authenticate, leases), consumer)


def application(channel: AnyChannel, ingest: Ingest, consumer: Consumer | None) -> Any:
    """Return the application around an endpoint that receives requests."""
    if not (consumer is None or isinstance(consumer, Consumer)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"ingest_app(consumer=) must be a Consumer, got {consumer!r:.80}")
    applications: Any = require("starlette.applications", "ingest_app", "'asyncdata[web]'")
    routing = require("starlette.routing", "ingest_app", "'asyncdata[web]'")

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncGenerator[None, None]:
        async with AsyncExitStack() as stack:
            if consumer is not None:
                await stack.enter_async_context(consumer)
            await stack.enter_async_context(channel)
            stack.callback(ingest.leases.end_all)
            yield

    admitting = Admit(channel, ingest)
    routes = [
        routing.Route("/ingest", ingest, methods=["POST"]),
        routing.WebSocketRoute("/ingest", IngestSocket(ingest, channel)),
        routing.Route("/admit", admitting, methods=["POST"]),
        routing.Route("/admit/{id}", admitting, methods=["DELETE"]),
        routing.Route("/health", Health(channel, consumer), methods=["GET"]),
        routing.Route("/metrics", Metrics(channel, ingest, consumer), methods=["GET"]),
        routing.Route("/openapi.json", OpenApi(), methods=["GET"]),
    ]

    class Application(applications.Starlette):
        def build_middleware_stack(self) -> Any:
            """Return what handles requests. If the user has added middleware or handlers of errors, these see all."""
            app, base = cast("Any", self), super()
            stack: Any = base.build_middleware_stack()
            return stack if app.user_middleware or app.exception_handlers or app.debug else directly(ingest, stack)

    return Application(routes=routes, lifespan=lifespan)


def directly(ingest: Ingest, stack: Any) -> Any:
    """Return what hands requests with items to `ingest` itself, as routing takes a third of their time, and others to
    the middleware of Starlette, as it does errors before an answer has begun."""
    errors = require("starlette.middleware.errors", "ingest_app", "'asyncdata[web]'")
    exceptions = require("starlette.middleware.exceptions", "ingest_app", "'asyncdata[web]'")

    async def handle(scope: Message, receive: Receive, send: Send) -> None:
        if scope.get("method") != "POST" or scope["path"] != scope.get("root_path", "") + "/ingest":
            return await stack(scope, receive, send)
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await ingest(scope, receive, sending)
        except Exception as error:
            if begun:
                raise
            failed = partial(raising, error)
            await errors.ServerErrorMiddleware(exceptions.ExceptionMiddleware(failed))(scope, receive, send)

    return handle


async def raising(error: Exception, *_: object) -> None:
    """Raise an error in the place of an application."""
    raise error
