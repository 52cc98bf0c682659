"""Which clients an ingest application serves: those on this machine, or those that the user's function admits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from asyncdata.runtime.loopback import is_loopback
from asyncdata.web.decoding import BodyError

__all__ = ("Authenticate", "admit")

Authenticate: TypeAlias = Callable[[Mapping[str, str]], bool | Awaitable[bool]]
"""Takes the headers of a request, by lower-case name, and returns whether to serve it."""


async def admit(authenticate: Authenticate | None, client: Any, headers: Mapping[str, str]) -> None:
    """Raise unless a client may be served; `client` is that of the ASGI scope."""
    if authenticate is None:
        admit_this_machine(client, headers.get("origin"))
        return
    admitted = authenticate(headers)
    if not (await admitted if isawaitable(admitted) else admitted):
        raise BodyError(401, "the request is not authenticated")


def admit_this_machine(client: Any, origin: str | None) -> None:
    """Raise for clients on other machines, and for pages of other hosts in a browser on this machine."""
    if not is_loopback(None if client is None else client[0]):
        raise BodyError(403, "only clients on this machine are served: ingest_app(authenticate=) admits others")
    if origin is not None and not is_loopback(urlsplit(origin).hostname or ""):
        raise BodyError(
            403, f"only pages of this machine are served, not {origin:.80}: ingest_app(authenticate=) admits others"
        )
