"""A service below other middleware: `uvicorn tests.web.programs.wrapped_service:app`, or any other server of ASGI."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount

import asyncdata as ad

ROOM = 500_000
"""The bytes of the channel that is soon full."""

channel = ad.DurableChannel(os.environ["SPOOL"], max_lag=0)
small = ad.DurableChannel(os.environ["SPOOL"] + "-small", ROOM, ROOM // 10)


async def tagged(request: Any, call_next: Any) -> Any:
    reply = await call_next(request)
    reply.headers["x-seen"] = "yes"
    return reply


@asynccontextmanager
async def lifespan(app: Any) -> AsyncGenerator[None]:
    async with channel, small:
        yield


def served(seconds: float) -> Any:
    """The application whose clients have so much time for a body."""
    return ad.web.ingest_app(
        channel, body_seconds=seconds, max_body_bytes=1 << 20, authenticate=lambda headers: "x-refused" not in headers
    )


narrow = ad.web.ingest_app(small, max_body_bytes=1 << 20, receiving_bytes=1 << 20)
middleware = [Middleware(GZipMiddleware, minimum_size=1), Middleware(BaseHTTPMiddleware, dispatch=tagged)]
app = Starlette(
    routes=[Mount("/hurried", served(0.2)), Mount("/small", narrow), Mount("/", served(60))],
    middleware=middleware,
    lifespan=lifespan,
)
