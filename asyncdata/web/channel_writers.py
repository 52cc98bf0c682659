"""Where an ingest application puts the items that it accepts: a channel in memory, or one on the disk."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol, TypeAlias, final

from asyncdata.errors import PlanError
from asyncdata.web.body_memory import bytes_of_items, bytes_of_records
from asyncdata.web.channel import Channel, queue_of
from asyncdata.web.decoding import Decode, format_of
from asyncdata.web.durable import DurableChannel, send_checked
from asyncdata.web.idempotency import check_same_body, digest_of_body
from asyncdata.web.lag import Admission
from asyncdata.web.schema import Schema

__all__ = ("AnyChannel", "ChannelWriter", "DiskWriter", "MemoryWriter", "Payload", "writer_of")

AnyChannel: TypeAlias = Channel | DurableChannel

KNOWN_KEYS: Final = 1 << 16


class Payload(NamedTuple):
    """The content of one request, complete and checked."""

    content_type: str
    body: bytes
    """The bytes as they came."""
    items: list[Any]
    made_by: Decode | Schema | None = None
    """What made the items, unless they are values of JSON or MessagePack."""
    key: str | None = None
    version: int | None = None
    admission: Admission | None = None
    """With which it is sent."""


class ChannelWriter(Protocol):
    """Accepts all items of a request, or none."""

    async def put(self, payload: Payload) -> bool:
        """Accept it: `False` if its key was accepted before, with the same body.

        Raises `ChannelFull`, `ClosedError` or `PlanError`; `KeyReusedError` if the key came with another body,
        `AdmissionEndedError` if there is no such admission any more.
        """
        ...


@final
class MemoryWriter:
    """Sends items to a `Channel`, which counts the memory that they take."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.known: dict[str, bytes] = {}
        """The digests of bodies, by their keys."""

    async def put(self, payload: Payload) -> bool:
        form, key = format_of(payload.content_type), payload.key
        digest = b"" if key is None else digest_of_body(form, payload.body)
        if key in self.known:
            check_same_body(self.known[key], digest)
            return False
        queue = queue_of(self.channel)
        records = payload.made_by.records if isinstance(payload.made_by, Schema) else None
        if records is None or records.has_lists:
            size = bytes_of_items(form, payload.body, payload.items, records is None and payload.made_by is not None)
        else:
            size = bytes_of_records(payload.body, len(payload.items), len(records.columns))
        chunk = queue.weighed(payload.items, payload.version, size, payload.admission)
        chunk.records = records
        queue.send_now(chunk)
        if key is not None:
            self.known[key] = digest
            if len(self.known) > KNOWN_KEYS:
                del self.known[next(iter(self.known))]
        return True


@final
class DiskWriter:
    """Sends bodies to a `DurableChannel`, and returns when they are on the disk."""

    def __init__(self, channel: DurableChannel) -> None:
        self.channel = channel

    async def put(self, payload: Payload) -> bool:
        form = format_of(payload.content_type)
        return await send_checked(self.channel, payload.body, payload.key, payload.version, form, payload.admission)


def writer_of(channel: object) -> ChannelWriter:
    """Return the writer for a channel."""
    if isinstance(channel, Channel):
        return MemoryWriter(channel)
    if isinstance(channel, DurableChannel):
        return DiskWriter(channel)
    raise PlanError(f"ingest_app needs a Channel or a DurableChannel, got {channel!r:.80}")
