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

channel = ad.DurableChannel(os.environ["SPOOL"], max_lag=0)


async def tagged(request: Any, call_next: Any) -> Any:
    reply = await call_next(request)
    reply.headers["x-seen"] = "yes"
    return reply


@asynccontextmanager
async def lifespan(app: Any) -> AsyncGenerator[None]:
    async with channel:
        yield


def served(seconds: float) -> Any:
    """The application whose clients have so much time for a body."""
    return ad.web.ingest_app(
        channel, body_seconds=seconds, max_body_bytes=1 << 20, authenticate=lambda headers: "x-refused" not in headers
    )


middleware = [Middleware(GZipMiddleware, minimum_size=1), Middleware(BaseHTTPMiddleware, dispatch=tagged)]
app = Starlette(
    routes=[Mount("/hurried", served(0.2)), Mount("/", served(60))], middleware=middleware, lifespan=lifespan
)
