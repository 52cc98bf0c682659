"""Where an ingest application puts what it takes in: a channel in memory, or one that keeps it on the disk."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol, TypeAlias, final

from asyncdata.errors import PlanError
from asyncdata.web.channel import Channel
from asyncdata.web.durable import DurableChannel

__all__ = ("AnyChannel", "Brought", "InMemory", "Intake", "OnDisk", "intake_of")

AnyChannel: TypeAlias = Channel | DurableChannel

KNOWN_KEYS: Final = 1 << 16


class Brought(NamedTuple):
    """What one request brought, whole and checked."""

    content_type: str
    body: bytes
    """As it came; empty where `Intake.keeps_bodies` is false."""
    nbytes: int
    items: list[Any]
    key: str | None = None
    version: int | None = None


class Intake(Protocol):
    """Takes all items of a request, or none."""

    @property
    def keeps_bodies(self) -> bool:
        """Whether it needs the bytes of a body beside its items."""
        ...

    async def put(self, brought: Brought) -> bool:
        """Take it: `False` if something with its key was taken before. `ChannelFull`, `ClosedError` or `PlanError`."""
        ...


@final
class InMemory:
    """Takes items for a `Channel`."""

    keeps_bodies = False

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.known: dict[str, None] = {}

    async def put(self, brought: Brought) -> bool:
        if brought.key in self.known:
            return False
        self.channel.send_nowait(brought.items, version=brought.version, nbytes=brought.nbytes)
        if brought.key is not None:
            self.known[brought.key] = None
            if len(self.known) > KNOWN_KEYS:
                del self.known[next(iter(self.known))]
        return True


@final
class OnDisk:
    """Takes bodies for a `DurableChannel`, and returns when they are on the disk."""

    keeps_bodies = True

    def __init__(self, channel: DurableChannel) -> None:
        self.channel = channel

    async def put(self, brought: Brought) -> bool:
        return await self.channel.send(
            brought.body, brought.key, version=brought.version, content_type=brought.content_type
        )


def intake_of(channel: object) -> Intake:
    """Return what takes items for a channel."""
    if isinstance(channel, Channel):
        return InMemory(channel)
    if isinstance(channel, DurableChannel):
        return OnDisk(channel)
    raise PlanError(f"ingest_app needs a Channel or a DurableChannel, got {channel!r:.80}")
