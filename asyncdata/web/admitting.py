"""`POST /admit` and `DELETE /admit/ID`, and what WebSockets ask: producers on other machines ask before they work."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any, Final, final

from asyncdata.errors import ClosedError, PlanError
from asyncdata.web.admission import admit
from asyncdata.web.channel_writers import AnyChannel
from asyncdata.web.decoding import BodyError
from asyncdata.web.http import (
    JSON,
    Header,
    Ingest,
    Message,
    Receive,
    Send,
    advice,
    headers_of,
    query_of,
    refusal,
    respond,
    version_of,
)
from asyncdata.web.lag import Admitting
from asyncdata.web.leases import Leases

__all__ = ("MOST_SECONDS", "Admit", "admitted", "admitting_of", "later")

MOST_SECONDS: Final = 30.0
"""The longest time that a request may wait."""

MOST_WAITING: Final = 256
"""The most clients that wait: for each a `DurableChannel` has a pipe."""

SECONDS: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")


@final
class Admit:
    """The endpoint for admissions: an ASGI application."""

    def __init__(self, channel: AnyChannel, ingest: Ingest) -> None:
        self.channel = channel
        self.ingest = ingest

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        more: list[Header] = []
        try:
            await admit(self.ingest.authenticate, scope, headers_of(scope))
            if scope["method"] == "DELETE":
                status, reply = 200, {"released": self.ingest.leases.end(scope["path_params"]["id"])}
            else:
                status, reply = 200, await self.lease(query_of(scope), receive)
        except (BodyError, ClosedError) as error:
            status, refused = refusal(error)
            reply, more = {"error": refused["error"]}, advice(error, status)
        await respond(send, status, json.dumps(reply).encode(), [JSON, *more])

    async def lease(self, query: Mapping[str, str], receive: Receive) -> dict[str, Any]:
        """Admit a producer, and return the reply."""
        version, seconds = version_of(query), seconds_of(query)
        if version is None:
            raise BodyError(400, "?version= is missing: which model or policy the work is done with")
        try:
            async with asyncio.timeout(seconds) as limit:
                leaving = asyncio.create_task(end_when_client_leaves(receive, limit))
                try:
                    name = await admitted(self.channel, self.ingest.leases, version)
                finally:
                    leaving.cancel()
        except TimeoutError:
            raise later() from None
        return {"admission": name, "version": version, "seconds": self.ingest.leases.seconds}


async def admitted(channel: AnyChannel, leases: Leases, version: int) -> str:
    """Wait for an admission, and return the id of its lease."""
    admitting = admitting_of(channel, version)
    leases.waiting += 1
    try:
        async with asyncio.timeout(None if leases.waiting <= MOST_WAITING else 0):
            return leases.give(await admitting)
    except TimeoutError:
        raise later() from None
    finally:
        leases.waiting -= 1


def admitting_of(channel: AnyChannel, version: int) -> Admitting:
    """Return what waits for an admission; raise if the channel gives none."""
    try:
        return channel.admit(version)
    except PlanError:
        raise BodyError(404, "the server's channel has no max_lag: work and send without asking") from None


def later() -> BodyError:
    """Return the error for a client that was not admitted."""
    return BodyError(429, "as much work is under way as max_lag allows; ask again later")


async def end_when_client_leaves(receive: Receive, limit: asyncio.Timeout) -> None:
    """End the wait when the client leaves: its admission would hold up other clients."""
    while (await receive())["type"] != "http.disconnect":
        continue
    limit.reschedule(0)


def seconds_of(query: Mapping[str, str]) -> float:
    """Return for how long a request may wait."""
    wait = query.get("wait", "0")
    if not SECONDS.fullmatch(wait) or float(wait) > MOST_SECONDS:
        raise BodyError(400, f"?wait= must be a number of seconds up to {MOST_SECONDS:g}, got {wait!r:.80}")
    return float(wait)
