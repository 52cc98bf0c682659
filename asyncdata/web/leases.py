"""Leases: admissions that producers hold by an id over HTTP, each of which ends by itself if it is not used."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import final

from asyncdata.web.decoding import BodyError
from asyncdata.web.lag import Admission

__all__ = ("Leases",)


@final
class Lease:
    """An admission, the requests that are being received with it, and what ends it if there are none."""

    __slots__ = ("admission", "requests", "timer")

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.requests = 0
        self.timer: asyncio.TimerHandle | None = None


@final
class Leases:
    """The admissions of a server's producers, by their ids. Its methods are called on the server's event loop."""

    def __init__(self, seconds: float = 60.0) -> None:
        self.seconds = seconds
        """After so many without a request a lease ends."""
        self.held: dict[str, Lease] = {}
        self.given = self.expired = 0
        self.waiting = 0
        """How many clients wait for an admission."""

    def give(self, admission: Admission) -> str:
        """Hold an admission; return its id, which nobody can guess."""
        name = secrets.token_urlsafe(16)
        self.held[name] = Lease(admission)
        self.given += 1
        self.start(name)
        return name

    def using(self, name: str | None, version: int | None) -> AbstractContextManager[Admission | None]:
        """Give the admission with the id that a request has, or `None` if it has none.

        The end of the block ends the admission, unless the block raises. For an unknown id it is an admission with
        which a channel accepts only a request that it has accepted before.
        """
        lease = None if name is None else self.held.get(name)
        if name is None or lease is None:
            return nullcontext(None if name is None else Admission(version or 0, refused))
        return self.received_with(name, lease, version)

    @contextmanager
    def received_with(self, name: str, lease: Lease, version: int | None) -> Generator[Admission]:
        if version not in (None, lease.admission.version):
            raise BodyError(400, f"?version= is {version}, and the admission is of version {lease.admission.version}")
        lease.requests += 1
        self.stop(lease)
        try:
            yield lease.admission
            self.end(name)
        finally:
            lease.requests -= 1
            if not lease.requests and name in self.held:
                self.start(name)

    def end(self, name: str) -> bool:
        """End a lease; return whether that ends an admission, as nothing was sent with it."""
        lease = self.held.pop(name, None)
        if lease is None:
            return False
        self.stop(lease)
        lease.admission.release()
        return not lease.admission.used

    def end_all(self) -> None:
        """End all leases, as nobody is served any more."""
        for name in list(self.held):
            self.end(name)

    def start(self, name: str) -> None:
        self.held[name].timer = asyncio.get_running_loop().call_later(self.seconds, self.expire, name)

    def stop(self, lease: Lease) -> None:
        if lease.timer is not None:
            lease.timer.cancel()

    def expire(self, name: str) -> None:
        self.expired += self.end(name)


def refused(admission: Admission) -> None:
    """Release nothing: there was no such admission."""
