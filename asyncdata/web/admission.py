"""Whom an ingest application serves: clients on this machine, or whom the user's function admits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from asyncdata.runtime.loopback import is_loopback
from asyncdata.web.decoding import BodyError

__all__ = ("Authenticate", "admit")

Authenticate: TypeAlias = Callable[[Mapping[str, str]], bool | Awaitable[bool]]
"""Says of the headers of a request, by lower-case name, whether it may be served."""


async def admit(authenticate: Authenticate | None, client: Any, headers: Mapping[str, str]) -> None:
    """Raise unless a client may be served; `client` is that of the ASGI scope."""
    if authenticate is None:
        admit_this_machine(client, headers.get("origin"))
        return
    admitted = authenticate(headers)
    if not (await admitted if isawaitable(admitted) else admitted):
        raise BodyError(401, "the request is not authenticated")


def admit_this_machine(client: Any, origin: str | None) -> None:
    """Raise for other machines, and for pages of other hosts that a browser on this machine shows."""
    if not is_loopback(None if client is None else client[0]):
        raise BodyError(403, "only clients on this machine are served: ingest_app(authenticate=) admits others")
    if origin is not None and not is_loopback(urlsplit(origin).hostname or ""):
        raise BodyError(
            403, f"pages of {origin:.80} are not served, only those of this machine: ingest_app(authenticate=)"
        )
