"""`POST /admit` and `DELETE /admit/ID`: producers on other machines ask before they work."""

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
from asyncdata.web.lag import Admission, Admitting

__all__ = ("MOST_SECONDS", "Admit")

MOST_SECONDS: Final = 30.0
"""The longest time that a request may wait."""

MOST_WAITING: Final = 256
"""The most requests that wait: for each a `DurableChannel` has a pipe."""

SECONDS: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")


@final
class Admit:
    """The endpoint for admissions: an ASGI application."""

    def __init__(self, channel: AnyChannel, ingest: Ingest) -> None:
        self.channel = channel
        self.ingest = ingest
        self.waiting = 0

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
            admitting = self.channel.admit(version)
        except PlanError:
            raise BodyError(404, "the server's channel has no max_lag: work and send without asking") from None
        self.waiting += 1
        try:
            admission = await admitted(admitting, seconds if self.waiting <= MOST_WAITING else 0, receive)
        finally:
            self.waiting -= 1
        leases = self.ingest.leases
        return {"admission": leases.give(admission), "version": version, "seconds": leases.seconds}


async def admitted(admitting: Admitting, seconds: float, receive: Receive) -> Admission:
    """Wait for an admission, for so many seconds at most and while the client is there."""
    try:
        async with asyncio.timeout(seconds) as limit:
            leaving = asyncio.create_task(end_when_client_leaves(receive, limit))
            try:
                return await admitting
            finally:
                leaving.cancel()
    except TimeoutError:
        raise BodyError(429, "as much work is under way as max_lag allows; ask again later") from None


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
