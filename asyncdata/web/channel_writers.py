"""Where an ingest application puts the items that it accepts: a channel in memory, or one on the disk."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol, TypeAlias, final

from asyncdata.errors import PlanError
from asyncdata.web.channel import Channel
from asyncdata.web.durable import DurableChannel

__all__ = ("AnyChannel", "ChannelWriter", "DiskWriter", "MemoryWriter", "Payload", "writer_of")

AnyChannel: TypeAlias = Channel | DurableChannel

KNOWN_KEYS: Final = 1 << 16


class Payload(NamedTuple):
    """The content of one request, complete and checked."""

    content_type: str
    body: bytes
    """The bytes as they came; empty if `ChannelWriter.keeps_bodies` is false."""
    nbytes: int
    items: list[Any]
    key: str | None = None
    version: int | None = None


class ChannelWriter(Protocol):
    """Accepts all items of a request, or none."""

    @property
    def keeps_bodies(self) -> bool:
        """Whether it needs the bytes of a body as well as its items."""
        ...

    async def put(self, payload: Payload) -> bool:
        """Accept it: `False` if its key was accepted before. Raises `ChannelFull`, `ClosedError` or `PlanError`."""
        ...


@final
class MemoryWriter:
    """Sends items to a `Channel`."""

    keeps_bodies = False

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.known: dict[str, None] = {}

    async def put(self, payload: Payload) -> bool:
        if payload.key in self.known:
            return False
        self.channel.send_nowait(payload.items, version=payload.version, nbytes=payload.nbytes)
        if payload.key is not None:
            self.known[payload.key] = None
            if len(self.known) > KNOWN_KEYS:
                del self.known[next(iter(self.known))]
        return True


@final
class DiskWriter:
    """Sends bodies to a `DurableChannel`, and returns when they are on the disk."""

    keeps_bodies = True

    def __init__(self, channel: DurableChannel) -> None:
        self.channel = channel

    async def put(self, payload: Payload) -> bool:
        return await self.channel.send(
            payload.body, payload.key, version=payload.version, content_type=payload.content_type
        )


def writer_of(channel: object) -> ChannelWriter:
    """Return the writer for a channel."""
    if isinstance(channel, Channel):
        return MemoryWriter(channel)
    if isinstance(channel, DurableChannel):
        return DiskWriter(channel)
    raise PlanError(f"ingest_app needs a Channel or a DurableChannel, got {channel!r:.80}")
