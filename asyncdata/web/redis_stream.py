"""Redis Streams: entries after an offset, or those that a consumer group distributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, final

from asyncdata.errors import DataLossError, PlanError
from asyncdata.runtime.block import Failure
from asyncdata.system.optional_packages import require
from asyncdata.web.queue_reader import WAIT_SECONDS, Begin, Message, MessagesRemovedError, QueueReader

__all__ = ("RedisStream",)

EXTRA: Final = "'asyncdata[redis]'"
FIRST: Final = "0-0"
"""The offset before all entries."""

REPORTED: Final = -1
"""Known after an error: entries may have been removed, by a server that does not count them."""

RAW: Final = ("XREAD", "XREADGROUP", "XRANGE")
"""The commands whose answers are taken as they come: redis-py makes dicts of fields, which lose repeated names."""

Entry: TypeAlias = tuple[bytes, list[bytes] | None]
"""The offset of an entry, and its fields: names and values in turn; `None` for a deleted entry."""


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


class Held(NamedTuple):
    """What a stream says about itself."""

    length: int
    """How many entries it holds."""
    first: str | None
    """The offset of the oldest one."""
    newest: str
    """The offset of the entry that was added last, whether it is still there or not."""
    added: int | None
    """How many entries were ever added; `None` before Redis 7."""

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Held:
        """Parse the answer to XINFO STREAM."""
        first = answer["first-entry"]
        return cls(
            answer["length"],
            first[0].decode() if first else None,
            answer["last-generated-id"].decode(),
            answer.get("entries-added"),
        )


class RepeatedFieldError(ValueError):
    """An entry that is no element."""

    def __init__(self, offset: str, sent: Sequence[bytes]) -> None:
        super().__init__(f"entry {offset} has several fields of one name, which a dict cannot hold: {sent!r:.200}")
        self.offset, self.sent = offset, sent

    def __reduce__(self) -> Any:
        return RepeatedFieldError, (self.offset, self.sent)


@final
class RedisReader(QueueReader[str]):
    """Reads a stream with `XREAD`, or with `XREADGROUP` for a group.

    It knows how many entries had ever been added up to the last one that it has read, not counting those that were
    reported as removed: what was added since and is not there has been removed.
    """

    kind: ClassVar[type] = str

    def __init__(self, source: RedisStream) -> None:
        super().__init__(f"from_redis_stream({source.stream})", source.group, source.follow, source.give_up_seconds)
        self.source, self.start = source, source.start
        self.client: Any = None
        self.pending = False
        """Whether the group may have entries that this consumer received and did not acknowledge."""
        self.joined = False
        self.latest = (0, 0)
        """The offset of the newest entry that the group gave."""

    def transient_errors(self) -> tuple[type[Exception], ...]:
        errors = require("redis.exceptions", "from_redis_stream", EXTRA)
        return errors.ConnectionError, errors.TimeoutError

    def is_refused(self, error: Exception) -> bool:
        return isinstance(error, require("redis.exceptions", "from_redis_stream", EXTRA).AuthenticationError)

    async def connect(self) -> None:
        asynchronous = require("redis.asyncio", "from_redis_stream", EXTRA)
        self.client = asynchronous.Redis.from_url(self.source.url, protocol=2, socket_timeout=4 * WAIT_SECONDS)
        for command in RAW:
            self.client.set_response_callback(command, unchanged)
        if not self.source.follow and not await self.client.exists(self.source.stream):
            raise PlanError(f"{self.name}: there is no such stream")
        if self.source.group is not None:
            await self.join(self.source.group)
        elif self.offset is None and self.expected is None:
            await self.begin()

    async def begin(self) -> None:
        """Find where to begin, and what the stream holds from there on."""
        held = await self.held()
        if held is None:
            self.offset, self.known = FIRST, 0
        elif self.source.start == "new":
            self.offset, self.known = held.newest, held.added
        else:
            self.offset, self.known = FIRST, None if held.added is None else held.added - held.length

    async def held(self) -> Held | None:
        """Return what the stream says about itself; `None` if there is no stream."""
        return held_of((await self.client.pipeline().xinfo_stream(self.source.stream).execute(raise_on_error=False))[0])

    async def join(self, group: str) -> None:
        """Create the group if there is none."""
        errors = require("redis.exceptions", "from_redis_stream", EXTRA)
        begin = "$" if self.source.start == "new" else "0"
        try:
            await self.client.xgroup_create(self.source.stream, group, begin, mkstream=True)
        except errors.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise
        else:
            if self.joined:
                raise self.put_back(group, "there was none")
        self.pending = self.joined = True

    def put_back(self, group: str, reason: str) -> DataLossError:
        """Return the error for a group that does not know any more which entries it gave."""
        return DataLossError(
            f"{self.name}: group {group!r} was deleted or put back while it was read: {reason}; entries would come "
            "again, or be left out"
        )

    async def receive(self) -> list[Message]:
        if self.source.group is not None:
            try:
                entries = await self.next_of_group(self.source.group)
            except require("redis.exceptions", "from_redis_stream", EXTRA).ResponseError as error:
                if str(error).startswith(("NOGROUP", "UNBLOCKED")):
                    raise self.put_back(self.source.group, str(error)) from None
                raise
            return [Message(offset.decode(), None, item_of(offset, fields)) for offset, fields in entries]
        offset = self.offset or before(self.expected or FIRST)
        entries, held = await self.after(offset)
        self.check(offset, entries, held)
        if not entries and self.follow:
            await self.client.xread({self.source.stream: offset}, 1, int(WAIT_SECONDS * 1000))
            return []
        first = None if self.known in (None, REPORTED) else self.known + 1
        return [
            Message(offset.decode(), None if first is None else first + place, item_of(offset, fields))
            for place, (offset, fields) in enumerate(entries)
        ]

    async def after(self, offset: str) -> tuple[list[Entry], Held | None]:
        """Return the entries after an offset, and what the stream says about itself at the same time."""
        stream = self.source.stream
        both = self.client.pipeline(transaction=True).xread({stream: offset}, self.most).xinfo_stream(stream)
        answer, told = await both.execute(raise_on_error=False)
        if isinstance(answer, Exception):
            raise answer
        return entries_of(answer), held_of(told)

    def check(self, offset: str, entries: Sequence[Entry], held: Held | None) -> None:
        """Raise if entries after an offset were removed, or the stream is another one.

        Each entry that was ever added counts, also one that was deleted singly. Where that cannot be told, because more
        entries are waiting than are read at once, it is told later.
        """
        if held is None:
            if offset != FIRST:
                raise self.renewed("there is none now")
            return
        if number_of(held.newest) < number_of(offset):
            raise self.renewed(f"entry {offset} was read, and the newest one is {held.newest}")
        is_all = len(entries) < self.most
        if held.added is None or self.known in (None, REPORTED):
            self.check_oldest(offset, held)
            self.known = held.added - len(entries) if held.added is not None and is_all else self.known
            return
        if not is_all and held.first is not None and number_of(held.first) <= number_of(offset):
            return
        lost = held.added - self.known - (len(entries) if is_all else held.length)
        if lost < 0:
            raise self.renewed(f"only {held.added} entries were ever added")
        if lost:
            self.known += lost
            raise MessagesRemovedError(
                f"{self.name}: {lost} entries after {offset} were removed before they were read: raise the limit of "
                "the stream (XADD MAXLEN), or read faster"
            )

    def check_oldest(self, offset: str, held: Held) -> None:
        """Raise if the oldest entry does not show that no later ones were removed; for servers that do not count."""
        is_there = held.first is not None and number_of(held.first) <= number_of(offset)
        if is_there or self.expected or offset in (FIRST, held.newest) or self.known == REPORTED:
            return
        self.known = REPORTED
        raise MessagesRemovedError(
            f"{self.name}: entries after {offset} may have been removed before they were read, as it and all before it "
            "were (Redis counts entries from version 7 on): raise the limit of the stream (XADD MAXLEN), or read faster"
        )

    async def next_of_group(self, group: str) -> list[Entry]:
        """Return entries that no other consumer of the group gets; they are acknowledged."""
        stream, consumer = self.source.stream, self.source.consumer
        while self.pending:
            found = entries_of(await self.client.xreadgroup(group, consumer, {stream: "0"}, self.most))
            self.pending = bool(found)
            if lost := [offset for offset, fields in found if not fields and offset not in self.given]:
                await self.client.xack(stream, group, *lost)
                raise MessagesRemovedError(
                    f"{self.name}: {len(lost)} entries that consumer {consumer!r} of group {group!r} had received, and "
                    "not acknowledged, were removed before they were read"
                )
            if new := await self.acknowledged(group, found):
                return new
        block = int(WAIT_SECONDS * 1000) if self.source.follow else None
        found = entries_of(await self.client.xreadgroup(group, consumer, {stream: ">"}, self.most, block))
        if found and number_of(first := found[0][0].decode()) <= self.latest:
            raise self.put_back(group, f"it gives {first} again")
        self.latest = number_of(found[-1][0].decode()) if found else self.latest
        return await self.acknowledged(group, found)

    async def acknowledged(self, group: str, found: Sequence[Entry]) -> list[Entry]:
        """Acknowledge entries, and return those that were not given before."""
        new = self.not_given(dict(found))
        try:
            if found:
                await self.client.xack(self.source.stream, group, *[offset for offset, _ in found])
        except self.transient_errors():
            self.pending = True  # they may come again
        return [*new.items()]

    async def disconnect(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            await client.aclose()


def unchanged(answer: Any, **options: Any) -> Any:
    """Return an answer as it came."""
    return answer


def entries_of(answer: Any) -> list[Entry]:
    """Return the entries of one stream in the answer to XREAD or XREADGROUP."""
    return answer[0][1] if answer else []


def held_of(answer: Any) -> Held | None:
    """Return what a stream says about itself; `None` if there is no stream."""
    if isinstance(answer, Exception):
        if "no such key" in str(answer):
            return None
        raise answer
    return Held.of(answer)


def item_of(offset: bytes, fields: Sequence[bytes] | None) -> dict[str, bytes] | Failure:
    """Return the fields of an entry by their names, or the failure of one that has two of the same name."""
    pairs = iter(fields or ())
    item = {name.decode(errors="surrogateescape"): value for name, value in zip(pairs, pairs, strict=True)}
    if 2 * len(item) == len(fields or ()):
        return item
    return Failure(RepeatedFieldError(offset.decode(), fields or ()))


def number_of(offset: str) -> tuple[int, int]:
    """Return an offset in its order."""
    milliseconds, _, number = offset.partition("-")
    return int(milliseconds), int(number)


def before(offset: str) -> str:
    """Return the offset that comes just before another one."""
    milliseconds, number = number_of(offset)
    return f"{milliseconds}-{number - 1}" if number else f"{max(0, milliseconds - 1)}-{(1 << 64) - 1}"
