"""Asking: the admissions of one WebSocket, whose client asks before each message of work."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, final

from asyncdata.web.admitting import admitted, admitting_of, later
from asyncdata.web.channel_writers import AnyChannel
from asyncdata.web.decoding import BodyError
from asyncdata.web.http import version_of
from asyncdata.web.lag import Admission
from asyncdata.web.leases import Leases

__all__ = ("Asking", "asking_for")


@final
class Asking:
    """The admissions of one socket, one after another: a message asks for one, and the next message is sent with it."""

    def __init__(self, channel: AnyChannel, leases: Leases) -> None:
        self.channel = channel
        self.leases = leases
        self.name: str | None = None
        """The id of the lease that the next message is sent with."""
        self.limit: asyncio.Timeout | None = None
        """What ends the wait for an admission, while there is one."""
        self.left = False

    async def ask(self, data: bytes) -> dict[str, Any]:
        """Wait for the admission that a message asks for, and return the reply."""
        if self.limit is not None or self.name is not None:
            raise BodyError(409, "an admission was asked for: wait for the reply before the next message")
        version = version_asked(data)
        try:
            async with asyncio.timeout(0 if self.left else None) as self.limit:
                self.name = await admitted(self.channel, self.leases, version)
        except TimeoutError:
            raise later() from None
        finally:
            self.limit = None
        return {"admitted": version, "seconds": self.leases.seconds}

    def using(self) -> AbstractContextManager[Admission | None]:
        """Give the admission, as `Leases.using` does."""
        return self.leases.using(self.name, None)

    def answered(self, status: int) -> None:
        """Take note of the reply to what was sent with the admission."""
        if status in (200, 409):
            self.name = None

    def leave(self) -> None:
        """End the admission, and the wait for one."""
        if self.limit is not None and not self.left:
            self.limit.reschedule(0)
        self.left = True
        if self.name is not None:
            self.leases.end(self.name)


def asking_for(query: Mapping[str, str], channel: AnyChannel, leases: Leases) -> Asking | None:
    """Return the admissions of a socket with `?admit=1`; `None` without it."""
    if "admit" not in query:
        return None
    if query["admit"] != "1" or "version" in query:
        raise BodyError(400, "?admit= must be 1, and there is no ?version= beside it: each message that asks has one")
    admitting_of(channel, 0)
    return Asking(channel, leases)


def version_asked(data: bytes) -> int:
    """Return the version in a message that asks."""
    try:
        version = json.loads(data)["version"]
    except (ValueError, RecursionError, TypeError, KeyError):
        version = None
    found = None if type(version) is not int else version_of({"version": str(version)})
    if found is None:
        raise BodyError(400, 'a message that asks is {"version": 7}: which model or policy the work is done with')
    return found
