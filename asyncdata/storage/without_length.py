"""Files whose web server does not say how long they are: it sends them in chunks, as it makes them."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException
from typing import Any, Final, Self, cast
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from asyncdata.errors import DataLossError
from asyncdata.redaction import redacted

__all__ = ("ChunkedDownload",)

CHUNK: Final = 1 << 18
SILENT_SECONDS: Final = 30.0

HEADERS: Final = "default_headers"
HANDLED: Final = frozenset({HEADERS, "allow_http", "timeout", "read_timeout", "connect_timeout"})
"""The options of a client that do not matter here, or are heeded; others, such as those of a proxy, are not."""


class ChunkedDownload:
    """One request for a complete file, read in threads by Python's own client, as obstore refuses such an answer."""

    def __init__(self, url: str, client_options: Mapping[str, Any]) -> None:
        self.url = url
        self.shown = redacted(url.partition("?")[0])
        self.response: Any = None
        self.seen = 0
        if (others := sorted(set(client_options) - HANDLED)) or "@" in urlsplit(url).netloc:
            raise OSError(
                errno.ENOTSUP,
                "its server does not say how long it is (there is no Content-Length); that cannot be read with "
                f"{', '.join(others) or 'a user in the URL'}",
                self.shown,
            )
        self.headers = cast("Mapping[str, str]", client_options.get(HEADERS) or {})

    async def begin(self) -> Self:
        """Make the request; raise if the server refuses it."""
        request = Request(self.url, headers=dict(self.headers))
        opener = build_opener(SameHostHeaders)
        try:
            self.response = await asyncio.to_thread(opener.open, request, timeout=SILENT_SECONDS)
        except HTTPError as error:
            error.close()
            raise OSError(errno.EIO, f"the server answered {error.code}", self.shown) from None
        except (OSError, HTTPException) as error:
            raise ConnectionError(f"{self.shown}: {type(error).__name__}") from None
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            data: bytes = await asyncio.to_thread(self.response.read1, CHUNK)
        except (OSError, HTTPException) as error:
            self.response.close()
            raise DataLossError(
                f"{self.shown}: the answer broke off after {self.seen} bytes: {type(error).__name__}"
            ) from None
        self.seen += len(data)
        if not data:
            self.response.close()
            raise StopAsyncIteration
        return data

    async def whole(self) -> bytes:
        """Return all that comes."""
        parts: list[bytes] = []
        try:
            while (data := await anext(self, None)) is not None:
                parts.append(data)
        finally:
            self.close()
        return b"".join(parts)

    def close(self) -> None:
        """End the request: a thread that waits for its next bytes gets an error at once."""
        if self.response is None or self.response.isclosed():
            return
        with suppress(OSError), socket.socket(fileno=os.dup(self.response.fileno())) as connection:
            connection.shutdown(socket.SHUT_RDWR)
        self.response.close()


class SameHostHeaders(HTTPRedirectHandler):
    """Follows redirects; the user's headers go to no other host."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        found = super().redirect_request(req, fp, code, msg, headers, newurl)
        if found is not None and urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
            found.headers.clear()
        return found
