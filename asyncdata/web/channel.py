"""Channel: a queue of items from async code, on any event loop or thread, to a pipeline."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncIterable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, cast, final

from asyncdata.elements.structure import nbytes as weight_of
from asyncdata.errors import ChannelFull, ClosedError, PlanError
from asyncdata.graph.node import check_count
from asyncdata.runtime.queue import LoopSignal
from asyncdata.system import forks
from asyncdata.system.closing import Closable
from asyncdata.web.lag import Admission, AdmissionEndedError, Admitting, LagLimit, Staleness
from asyncdata.web.pace import ChannelReader
from asyncdata.web.plain_records import PlainRecords

__all__ = ("Channel", "ChannelQueue", "Taken", "check_admission", "check_version", "limit_of", "queue_of", "version_of")

VERSIONS: Final = range(1 - (1 << 63), 1 << 63)


@final
class Channel(Closable):
    """A bounded queue from async code to a pipeline: `Dataset.from_channel(channel)` gives what is sent, in order.

    `send` and `send_nowait` may be called on any event loop and in any thread, while the pipeline runs in a thread of
    its own. It holds at most `max_items` items and `max_bytes` bytes. When it is full, `send` waits, so a slow
    consumer slows the senders down. Each item goes to one iteration. Two kinds of items are lost: those that a pipeline
    has read ahead when it is left, and those that are in the channel when the process ends.

    With `max_lag`, producers ask before they work: `admit` waits while more than `max_lag` sends could be read before
    theirs is.

    >>> import asyncio
    >>> import asyncdata as ad
    >>> channel = ad.Channel()
    >>> async def serve():
    ...     async with channel:  # closes it at the end
    ...         await channel.send([1, 2, 3])
    >>> asyncio.run(serve())
    >>> channel.closed
    True
    >>> list(ad.Dataset.from_channel(channel).batch(2))
    [array([1, 2]), array([3])]
    """

    def __init__(self, max_items: int = 10_000, max_bytes: int = 64 << 20, max_lag: int | None = None) -> None:
        items = check_count("Channel", "max_items", max_items, 1)
        limit = None if max_lag is None else LagLimit(check_count("Channel", "max_lag", max_lag, 0))
        self._queue = ChannelQueue(items, check_count("Channel", "max_bytes", max_bytes, 1), limit)

    def admit(self, version: int) -> Admitting:
        """Wait until work with this version of a model or policy may begin, and return an `Admission`.

        What the work makes is sent with `send(items, admission=)`, once. Between the two at most `max_lag` other sends
        are read, however long the work takes: so it is not too old when it is read. Of several producers that wait, the
        first is admitted first. Work that ends without a send holds up others until it is released, as at the end of
        `async with`. `ClosedError` if the channel is closed, `PlanError` without `max_lag`.

        >>> import asyncio
        >>> import asyncdata as ad
        >>> channel = ad.Channel(max_lag=8)
        >>> async def work(version):
        ...     async with channel.admit(version) as admission:
        ...         await channel.send([version * 10], admission=admission)
        >>> asyncio.run(work(3))
        >>> channel.stats()["sent"]
        1
        """
        limit = limit_of(self._queue.limit, version)
        return Admitting(lambda: self._queue.admit(limit, Admission(version, self._queue.release)))

    async def send(
        self,
        items: Iterable[Any],
        *,
        version: int | None = None,
        nbytes: int | None = None,
        admission: Admission | None = None,
    ) -> None:
        """Send some items together, as soon as the channel has space for all of them, in the order of the calls.

        `version` is the number of the policy or model that made them, for `from_channel(min_version=)`; with an
        `admission` it is that of the admission. `nbytes` is
        their total size; without it all count as large as the first. `PlanError` if they would not fit into an empty
        channel, `ClosedError` if it is closed. A call that is cancelled has sent nothing.

        >>> import asyncio
        >>> import asyncdata as ad
        >>> async def serve():
        ...     channel = ad.Channel()
        ...     await channel.send([1, 2, 3])
        ...     channel.close()
        ...     return [item async for item in ad.Dataset.from_channel(channel)]
        >>> asyncio.run(serve())
        [1, 2, 3]
        """
        chunk = self._queue.weighed(listed(items), version, nbytes, admission)
        if not self._queue.put(chunk):
            await self._queue.put_later(chunk)

    def send_nowait(
        self,
        items: Iterable[Any],
        *,
        version: int | None = None,
        nbytes: int | None = None,
        admission: Admission | None = None,
    ) -> None:
        """Send some items now; `ChannelFull` if there is no space for all of them, or other senders wait for space.

        >>> import asyncdata as ad
        >>> channel = ad.Channel(max_items=2)
        >>> channel.send_nowait([1, 2])
        >>> channel.send_nowait([3])
        Traceback (most recent call last):
        asyncdata.errors.ChannelFull: the channel holds 2 of 2 items, ... and has no space for 1 more ...
        """
        self._queue.send_now(self._queue.weighed(listed(items), version, nbytes, admission))

    def close(self) -> None:
        """End the input: iterations end after the items that are there. Senders that wait get `ClosedError`.

        >>> import asyncdata as ad
        >>> channel = ad.Channel()
        >>> channel.send_nowait([1, 2])
        >>> channel.close()
        >>> list(ad.Dataset.from_channel(channel))
        [1, 2]
        """
        self._queue.end(None)

    async def aclose(self) -> None:
        """Do the same as `close`, which never blocks.

        >>> import asyncio
        >>> import asyncdata as ad
        >>> channel = ad.Channel()
        >>> asyncio.run(channel.aclose())  # as the end of `async with` does
        >>> channel.closed
        True
        """
        self.close()

    def fail(self, error: BaseException) -> None:
        """Close it with an error: after the items that are there, each iteration raises `error` and ends.

        >>> import asyncdata as ad
        >>> channel = ad.Channel()
        >>> channel.send_nowait([1])
        >>> channel.fail(OSError("the camera is gone"))
        >>> items = iter(ad.Dataset.from_channel(channel))
        >>> next(items)
        1
        >>> next(items)
        Traceback (most recent call last):
            ...
        OSError: the camera is gone
        ...
        """
        self._queue.end(error)

    @property
    def closed(self) -> bool:
        """Whether it accepts no more items."""
        return self._queue.closed

    def stats(self) -> dict[str, float]:
        """Return how many items and bytes it holds, and how many items were sent, taken and dropped as stale.

        `waiting` counts the calls of `send` that wait for space, `working` the admissions that have sent nothing yet.
        `staleness` is how many versions the items taken were behind the newest one that was sent or admitted, in the
        mean, and `max_staleness` at most. `waste` is the share of items dropped among those taken and dropped.

        >>> import asyncdata as ad
        >>> channel = ad.Channel()
        >>> channel.send_nowait(["a", "b", "c"], nbytes=3)
        >>> channel.stats()
        {'items': 3, 'bytes': 3, 'sent': 3, 'taken': 0, 'dropped': 0, 'waiting': 0, 'working': 0, 'staleness': 0.0, ...}
        """
        return self._queue.stats()

    def __repr__(self) -> str:
        return f"<Channel {self.stats()}>"

    def __reduce__(self) -> Any:
        raise TypeError("a Channel belongs to its process, and cannot be sent to another one")


def queue_of(channel: Channel) -> ChannelQueue:
    """Return the queue that a pipeline reads."""
    return channel._queue  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def listed(items: Iterable[Any]) -> list[Any]:
    """Return items as a list; `PlanError` for a value that is one item, or a table."""
    if type(items) is list:  # in a tenth of the time
        return cast("list[Any]", items).copy()
    if is_table(items):
        raise PlanError(
            f"send needs a list of items, got a {type(items).__name__}, which is a list of columns: send its rows, as "
            "by to_dict('records') of pandas, rows(named=True) of polars or to_pylist() of pyarrow"
        )
    if isinstance(items, AsyncIterable):
        raise PlanError(f"send needs a list of items, got {items!r:.80}: send each item as it comes, or collect some")
    if is_one(items) or not isinstance(items, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"send needs a list of items, got {items!r:.80}: send one item as [item]")
    return list(items)


FIELDS: Final = (
    *("__pydantic_fields__", "__dataclass_fields__", "__attrs_attrs__", "__struct_fields__"),  # msgspec's are the last
    "_fields",  # of a named tuple
)


def is_one(items: object) -> bool:
    """Return whether a value that can perhaps be iterated is one item: its parts are fields, characters or bytes."""
    if isinstance(items, (Mapping, str, bytes, bytearray, memoryview)):
        return True
    return any(hasattr(type(items), name) for name in FIELDS) or getattr(items, "shape", None) == ()


def is_table(items: object) -> bool:
    """Return whether iterating a value would give its columns, or their names."""
    names = ("columns", "__dataframe__", "__arrow_c_array__")
    return hasattr(type(items), "shape") and any(hasattr(type(items), name) for name in names)


def check_version(version: object) -> None:
    """Raise unless `version` is an integer of 64 bits or `None`."""
    if version is not None and (not isinstance(version, int) or version not in VERSIONS):
        raise PlanError(f"send(version=) must be an integer of at most 64 bits, got {version!r:.80}")


def limit_of(limit: LagLimit | None, version: object) -> LagLimit:
    """Return the limit of a channel for work of a version; `PlanError` if it has none."""
    check_version(version)
    if version is None:
        raise PlanError("admit(version) must be an integer, got None")
    if limit is None:
        raise PlanError("admit needs a channel with max_lag=, the most sends that may be read before the one admitted")
    return limit


def check_admission(limit: LagLimit | None, admission: Admission) -> None:
    """Raise unless something may be sent with an admission to a channel with this limit, if it has one."""
    if limit is None:
        raise AdmissionEndedError(f"send(admission=): {admission!r} is of another channel, as this one has no max_lag")
    limit.check(admission)


def version_of(admission: Admission | None, version: int | None) -> int | None:
    """Return the version of what is sent."""
    if admission is None:
        return version
    if not isinstance(admission, Admission) or version not in (None, admission.version):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(
            f"send(admission=) must be what `await channel.admit(version)` returns, and has its version, got "
            f"{admission!r:.80} and version={version!r:.80}"
        )
    return admission.version


@final
class Chunk:
    """Items that were sent together, of which the first `taken` were read."""

    __slots__ = ("admission", "items", "nbytes", "records", "since", "taken", "version")

    def __init__(
        self, items: list[Any], nbytes: int, version: int | None, since: float, admission: Admission | None
    ) -> None:
        self.items = items
        self.records: PlainRecords | None = None
        """What makes items of `items`, if these are records."""
        self.nbytes = nbytes
        self.version = version
        self.since = since
        self.admission = admission
        self.taken = 0


class Taken(NamedTuple):
    """Consecutive items of the channel; the first one is number `start`. They are `records` if that is not `None`."""

    start: int
    items: list[Any]
    records: PlainRecords | None


@final
class Sender:
    """A call of `send` that waits for space, on its own loop."""

    __slots__ = ("chunk", "signal", "woken")

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.signal = LoopSignal(asyncio.get_running_loop(), threadsafe=True)
        self.woken = False

    def is_woken(self) -> bool:
        return self.woken

    def wake(self) -> None:
        self.woken = True
        self.signal.notify()


@final
class ChannelQueue:
    """The content of a channel. Its lock is held for a few instructions, and never while waiting."""

    def __init__(self, max_items: int, max_bytes: int, limit: LagLimit | None) -> None:
        self.id = secrets.token_hex(8)
        self.max_items = max_items
        self.max_bytes = max_bytes
        self.limit = limit
        self.staleness = Staleness()
        self.lock = forks.lock()
        self.chunks: deque[Chunk] = deque()
        self.senders: deque[Sender] = deque()
        self.readers: list[ChannelReader] = []
        self.items = self.bytes = self.sent = self.taken = self.dropped = 0
        self.closed = False
        self.error: BaseException | None = None

    # for senders

    def send_now(self, chunk: Chunk) -> None:
        """Add items; `ChannelFull` if there is no space for all of them, or another sender waits."""
        if not self.put(chunk):
            raise ChannelFull(self.full(chunk))

    async def admit(self, limit: LagLimit, admission: Admission) -> Admission:
        """Wait until work may begin."""
        signal = LoopSignal(asyncio.get_running_loop(), threadsafe=True)

        def admitted() -> bool:
            with self.lock:
                return self.closed or limit.try_admit(admission, signal)

        with self.lock:
            self.staleness.tell(admission.version)
            limit.waiting.append(signal)
        try:
            await signal.until(admitted)
            if self.closed:
                self.release(admission)
                raise ClosedError("the channel is closed, and admits no more work")
        finally:
            with self.lock:
                limit.leave(signal)
        return admission

    def release(self, admission: Admission) -> None:
        """End an admission with which nothing was sent."""
        with self.lock:
            if self.limit is not None:
                self.limit.release(admission)

    def weighed(
        self, items: list[Any], version: int | None, nbytes: int | None, admission: Admission | None = None
    ) -> Chunk:
        """Return items as they are stored; `PlanError` if they do not fit even into an empty channel."""
        if nbytes is None:
            weight = len(items) * weight_of(items[0]) if items else 0
        else:
            weight = check_count("send", "nbytes", nbytes, 0)
        version = version_of(admission, version)
        check_version(version)
        if len(items) > self.max_items or weight > self.max_bytes:
            raise PlanError(
                f"{len(items)} items of {weight} bytes do not fit into a channel of {self.max_items} items and "
                f"{self.max_bytes} bytes: send them in parts, or make Channel(max_items=, max_bytes=) larger"
            )
        return Chunk(items, weight, version, time.monotonic(), admission)

    def put(self, chunk: Chunk, sender: Sender | None = None) -> bool:
        """Add items, unless there is no space or another sender has waited longer for it."""
        with self.lock:
            if self.closed:
                raise ClosedError("the channel is closed, and accepts no more items")
            if chunk.admission is not None:
                check_admission(self.limit, chunk.admission)
            if (self.senders and self.senders[0] is not sender) or not self.fits(chunk):
                if sender is not None:
                    sender.woken = False
                for reader in self.readers:
                    reader.hurry()
                return False
            if sender is not None:
                self.senders.popleft()
            count = len(chunk.items)
            if count:
                self.chunks.append(chunk)
                self.items += count
                self.bytes += chunk.nbytes
                self.sent += count
                self.staleness.tell(chunk.version)
                if self.limit is not None:
                    self.limit.sent(chunk.admission)
            self.wake_sender()
        for reader in self.readers:
            reader.sent(self.items)
        return True

    async def put_later(self, chunk: Chunk) -> None:
        """Add items as soon as there is space, after all senders that waited before."""
        sender = Sender(chunk)
        with self.lock:
            self.senders.append(sender)
        try:
            while not self.put(chunk, sender):
                await sender.signal.until(sender.is_woken)
        finally:
            with self.lock:
                if sender in self.senders:
                    self.senders.remove(sender)
                    self.wake_sender()

    def fits(self, chunk: Chunk) -> bool:
        return self.items + len(chunk.items) <= self.max_items and self.bytes + chunk.nbytes <= self.max_bytes

    def wake_sender(self) -> None:
        """Wake the sender that has waited longest, if there is space for its items."""
        if self.senders and not self.senders[0].woken and (self.closed or self.fits(self.senders[0].chunk)):
            self.senders[0].wake()

    def full(self, chunk: Chunk) -> str:
        """Return the message that says why there was no space."""
        return (
            f"the channel holds {self.items} of {self.max_items} items, {self.bytes} of {self.max_bytes} bytes, and "
            f"has no space for {len(chunk.items)} more of {chunk.nbytes} bytes: send them again later, or await send()"
        )

    def end(self, error: BaseException | None) -> None:
        """Accept no more items; only the first call counts."""
        with self.lock:
            if self.closed:
                return
            self.closed, self.error = True, error
            self.wake_sender()
            senders = list(self.senders)
            waiting = [] if self.limit is None else list(self.limit.waiting)
        for sender in senders:
            sender.wake()
        for signal in waiting:
            signal.notify()
        for reader in self.readers:
            reader.hurry()

    # for readers

    @contextmanager
    def read_by(self, reader: ChannelReader) -> Generator[None]:
        """Tell a reader of items that are sent within the block."""
        with self.lock:
            self.readers = [*self.readers, reader]
        try:
            yield
        finally:
            with self.lock:
                self.readers = [other for other in self.readers if other is not reader]

    def ready(self, enough: int) -> bool:
        """Return whether there are enough items, or some and a sender that waits, or the channel has ended."""
        return self.items >= enough or (self.items > 0 and len(self.senders) > 0) or self.closed

    def take(self, limit: int, stale: Callable[[float, int | None], bool] | None) -> Taken | None:
        """Return at most `limit` items, none of them stale; `None` if there is none."""
        with self.lock:
            if stale is not None:
                self.drop(stale)
            found: list[Any] = []
            start = self.taken + self.dropped
            records = self.chunks[0].records if self.chunks else None
            while self.chunks and len(found) < limit and self.chunks[0].records is records:
                if found and stale is not None and stale(self.chunks[0].since, self.chunks[0].version):
                    break
                found = self.head(found, limit)
            self.taken += len(found)
            self.items -= len(found)
            if found:
                self.wake_sender()
        return Taken(start, found, records) if found else None

    def head(self, found: list[Any], limit: int) -> list[Any]:
        """Return `found`, extended from the first chunk up to the limit; a chunk that is used up frees its bytes."""
        chunk = self.chunks[0]
        more = len(chunk.items) - chunk.taken
        if len(found) + more > limit:
            stop = chunk.taken + limit - len(found)
            found += chunk.items[chunk.taken : stop]
            self.staleness.add(chunk.version, stop - chunk.taken)
            chunk.taken = stop
            return found
        self.staleness.add(chunk.version, more)
        self.remove_first()
        part = chunk.items[chunk.taken :] if chunk.taken else chunk.items
        if not found:
            return part
        found += part
        return found

    def drop(self, stale: Callable[[float, int | None], bool]) -> None:
        """Drop stale chunks at the front."""
        while self.chunks and stale(self.chunks[0].since, self.chunks[0].version):
            count = len(self.chunks[0].items) - self.chunks[0].taken
            self.dropped += count
            self.items -= count
            self.remove_first()
            self.wake_sender()

    def remove_first(self) -> None:
        """Remove a chunk that was read or is stale."""
        chunk = self.chunks.popleft()
        self.bytes -= chunk.nbytes
        if self.limit is not None:
            self.limit.count_read(chunk.admission)

    def stats(self) -> dict[str, float]:
        """Return the counts of items, bytes and senders, and the staleness."""
        with self.lock:
            return {
                "items": self.items,
                "bytes": self.bytes,
                "sent": self.sent,
                "taken": self.taken,
                "dropped": self.dropped,
                "waiting": len(self.senders),
                "working": 0 if self.limit is None else self.limit.working,
                **self.staleness.stats(self.taken, self.dropped),
            }
