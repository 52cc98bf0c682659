"""Redis Streams: entries after an offset, or those that a consumer group distributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, final

from asyncdata.errors import DataLossError, PlanError, ResumeError
from asyncdata.runtime.optional_packages import require
from asyncdata.web.queue_reader import MESSAGES, WAIT_SECONDS, Begin, Message, QueueReader

__all__ = ("RedisStream",)

EXTRA: Final = "'asyncdata[redis]'"
FIRST: Final = "0-0"
"""The offset before all entries."""


@dataclass(frozen=True)
class RedisStream:
    """The entries of a stream; each iteration connects anew."""

    url: str
    stream: str
    start: Begin
    group: str | None
    consumer: str
    follow: bool
    give_up_seconds: float

    def reader(self) -> RedisReader:
        return RedisReader(self)


@final
class RedisReader(QueueReader[str]):
    """Reads a stream with `XREAD`, or with `XREADGROUP` for a group."""

    kind: ClassVar[type] = str

    def __init__(self, source: RedisStream) -> None:
        super().__init__(f"from_redis_stream({source.stream})", source.group, source.follow, source.give_up_seconds)
        self.source = source
        self.client: Any = None
        self.pending = False
        """Whether the group may have entries that this consumer received and did not acknowledge."""

    def transient_errors(self) -> tuple[type[Exception], ...]:
        errors = require("redis.exceptions", "from_redis_stream", EXTRA)
        return errors.ConnectionError, errors.TimeoutError

    async def connect(self) -> None:
        asynchronous = require("redis.asyncio", "from_redis_stream", EXTRA)
        self.client = asynchronous.Redis.from_url(self.source.url, protocol=2, socket_timeout=4 * WAIT_SECONDS)
        if not self.source.follow and not await self.client.exists(self.source.stream):
            raise PlanError(f"{self.name}: there is no such stream")
        if self.source.group is not None:
            await self.join(self.source.group)
        elif self.offset is not None:
            await self.check_held(self.offset)
        elif self.expected is None:
            self.offset = await self.newest() if self.source.start == "new" else FIRST

    async def newest(self) -> str:
        """Return the offset of the last entry."""
        found = await self.client.xrevrange(self.source.stream, count=1)
        return found[0][0].decode() if found else FIRST

    async def check_held(self, offset: str) -> None:
        """Raise if entries after an offset may have been removed, because the older one at that offset was."""
        if offset != FIRST and not await self.client.xrange(self.source.stream, offset, offset):
            raise ResumeError(
                f"{self.name}: the state resumes after entry {offset}, which is no longer in the stream: later entries "
                "may have been removed too; start without the state"
            )

    async def join(self, group: str) -> None:
        """Create the group if there is none."""
        errors = require("redis.exceptions", "from_redis_stream", EXTRA)
        begin = "$" if self.source.start == "new" else "0"
        try:
            await self.client.xgroup_create(self.source.stream, group, begin, mkstream=True)
        except errors.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise
        self.pending = True

    async def receive(self) -> list[Message[str]]:
        if self.source.group is not None:
            found = await self.next_of_group(self.source.group)
        elif self.offset is None:
            found = await self.client.xrange(self.source.stream, self.expected, count=MESSAGES)
        else:
            found = await self.after(self.offset)
        return [(offset.decode(), fields_of(entry)) for offset, entry in found if entry]  # deleted entries are empty

    async def after(self, offset: str) -> list[tuple[bytes, Any]]:
        """Return the entries after an offset, and check that none of them was removed in between."""
        stream = self.source.stream
        block = int(WAIT_SECONDS * 1000) if self.source.follow else None
        both = self.client.pipeline(transaction=False)
        both.xread({stream: offset}, count=MESSAGES, block=block)
        both.xrange(stream, offset, offset)
        found, last = await both.execute()
        if found and not last and offset != FIRST:
            raise DataLossError(
                f"{self.name}: entry {offset} was removed before the next ones were read, and these may have been "
                "removed too: raise the limit of the stream (XADD MAXLEN), or read faster"
            )
        return found[0][1] if found else []

    async def next_of_group(self, group: str) -> list[tuple[bytes, Any]]:
        """Return entries that no other consumer of the group gets; they are acknowledged."""
        stream, consumer = self.source.stream, self.source.consumer
        found: list[tuple[bytes, Any]] = []
        if self.pending:
            answer = await self.client.xreadgroup(group, consumer, {stream: "0"}, count=MESSAGES)
            found = answer[0][1] if answer else []
            self.pending = bool(found)
        if not found:
            block = int(WAIT_SECONDS * 1000) if self.source.follow else None
            answer = await self.client.xreadgroup(group, consumer, {stream: ">"}, count=MESSAGES, block=block)
            found = answer[0][1] if answer else []
        if found:
            await self.client.xack(stream, group, *[offset for offset, _ in found])
        return found

    async def disconnect(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            await client.aclose()


def fields_of(entry: dict[bytes, bytes]) -> dict[str, bytes]:
    """Return the fields of an entry by their names."""
    return {name.decode(errors="surrogateescape"): value for name, value in entry.items()}
