"""Which clients an ingest application serves: those on this machine, or those that the user's function admits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, TypeAlias

from asyncdata.system.loopback import is_loopback, is_loopback_authority
from asyncdata.web.decoding import BodyError

__all__ = ("Authenticate", "admit")

Authenticate: TypeAlias = Callable[[Mapping[str, str]], bool | Awaitable[bool]]
"""Takes the headers of a request, by lower-case name, and returns whether to serve it."""


async def admit(authenticate: Authenticate | None, scope: Mapping[str, Any], headers: Mapping[str, str]) -> None:
    """Raise unless the client of a request may be served; `scope` is that of ASGI."""
    if authenticate is None:
        admit_this_machine(scope, headers)
        return
    admitted = authenticate(headers)
    if not (await admitted if isawaitable(admitted) else admitted):
        raise BodyError(401, "the request is not authenticated")


def admit_this_machine(scope: Mapping[str, Any], headers: Mapping[str, str]) -> None:
    """Raise for clients on other machines, and for pages of other hosts in a browser on this machine.

    Such a page names its host in `Origin`, or in `Host` if that name resolves to this machine.
    """
    if not is_local_client(scope.get("client"), scope.get("server")):
        raise BodyError(403, "only clients on this machine are served: ingest_app(authenticate=) admits others")
    origin, host = headers.get("origin"), headers.get("host")
    if origin is not None and not is_loopback_authority(origin.partition("://")[2]):
        raise BodyError(
            403, f"only pages of this machine are served, not {origin:.80}: ingest_app(authenticate=) admits others"
        )
    if host is not None and scope.get("client") is not None and not is_loopback_authority(host):
        raise BodyError(
            403,
            f"only this machine is served, by its own name, not {host:.80}: ingest_app(authenticate=) admits others",
        )


def is_local_client(client: Any, server: Any) -> bool:
    """Return whether a client is on this machine: by its address, or without one if the server has no port either.

    The address of a client that is gone already is unknown too.
    """
    if client is None:
        return server is None or server[1] is None
    return is_loopback(client[0])
