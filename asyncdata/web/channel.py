"""Channel: items that come from async code on any event loop or thread, and go into a pipeline."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, NamedTuple, final

from asyncdata.elements.structure import nbytes as weight_of
from asyncdata.errors import ChannelFull, ClosedError, PlanError
from asyncdata.graph.node import check_count
from asyncdata.runtime import forks
from asyncdata.runtime.closing import Closable
from asyncdata.runtime.queue import LoopSignal

__all__ = ("Channel", "ChannelQueue", "Taken", "queue_of")


@final
class Channel(Closable):
    """A bounded queue from async code to a pipeline: `Dataset.from_channel(channel)` gives what is sent, in order.

    `send` and `send_nowait` may be called on any event loop and in any thread, while the pipeline runs in a thread of
    its own. It holds at most `max_items` items and `max_bytes` bytes; when it is full `send` waits, so that a slow
    consumer holds up whoever sends. Each item goes to one iteration. What a pipeline has read ahead when it is left,
    and what is in the channel when the process ends, is lost.

    >>> import asyncio
    >>> import asyncdata as ad
    >>> channel = ad.Channel()
    >>> async def serve():
    ...     async with channel:  # closes it at the end
    ...         await channel.send([1, 2, 3])
    >>> asyncio.run(serve())
    >>> list(ad.Dataset.from_channel(channel).batch(2))
    [array([1, 2]), array([3])]
    """

    def __init__(self, max_items: int = 10_000, max_bytes: int = 64 << 20) -> None:
        items = check_count("Channel", "max_items", max_items, 1)
        self._queue = ChannelQueue(items, check_count("Channel", "max_bytes", max_bytes, 1))

    async def send(self, items: Iterable[Any], *, version: int | None = None, nbytes: int | None = None) -> None:
        """Send some items, all at once, as soon as there is room for all of them; in the order of the calls.

        `version` says which policy or model made them, for `from_channel(min_version=)`. `nbytes` is what they weigh
        together; without it the first speaks for the others. `PlanError` if they would not fit into an empty channel,
        `ClosedError` if it is closed. One that is cancelled has sent nothing.
        """
        chunk = self._queue.weighed(list(items), version, nbytes)
        if not self._queue.put(chunk):
            await self._queue.put_later(chunk)

    def send_nowait(self, items: Iterable[Any], *, version: int | None = None, nbytes: int | None = None) -> None:
        """Send some items now; `ChannelFull` if there is no room for all of them, or others wait for room.

        >>> import asyncdata as ad
        >>> channel = ad.Channel(max_items=2)
        >>> channel.send_nowait([1, 2])
        >>> channel.send_nowait([3])
        Traceback (most recent call last):
        asyncdata.errors.ChannelFull: the channel holds 2 of 2 items, ... and has no room for 1 more ...
        """
        chunk = self._queue.weighed(list(items), version, nbytes)
        if not self._queue.put(chunk):
            raise ChannelFull(self._queue.full(chunk))

    def close(self) -> None:
        """Say that nothing more will be sent: iterations end after what is there. Who waits gets `ClosedError`."""
        self._queue.end(None)

    async def aclose(self) -> None:
        """Do what `close` does, which never blocks."""
        self.close()

    def fail(self, error: BaseException) -> None:
        """Close it; after what is there each iteration raises `error`, and ends."""
        self._queue.end(error)

    @property
    def closed(self) -> bool:
        """Whether it takes nothing more."""
        return self._queue.closed

    def stats(self) -> dict[str, int]:
        """Return how many items and bytes it holds, how many were sent, taken and dropped as stale, and who waits.

        >>> import asyncdata as ad
        >>> channel = ad.Channel()
        >>> channel.send_nowait("abc", nbytes=3)
        >>> channel.stats()
        {'items': 3, 'bytes': 3, 'sent': 3, 'taken': 0, 'dropped': 0, 'waiting': 0}
        """
        return self._queue.stats()

    def __repr__(self) -> str:
        return f"<Channel {self.stats()}>"

    def __reduce__(self) -> Any:
        raise TypeError("a Channel belongs to its process, and cannot be sent to another one")


def queue_of(channel: Channel) -> ChannelQueue:
    """Return what a pipeline reads."""
    return channel._queue  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


@final
class Chunk:
    """Items that were sent together, of which the first `taken` are gone."""

    __slots__ = ("items", "nbytes", "since", "taken", "version")

    def __init__(self, items: list[Any], nbytes: int, version: int | None, since: float) -> None:
        self.items = items
        self.nbytes = nbytes
        self.version = version
        self.since = since
        self.taken = 0


class Taken(NamedTuple):
    """Items that follow each other in the channel, of which the first is number `start`."""

    start: int
    items: list[Any]


@final
class Sender:
    """Somebody who waits for room, on a loop of his own."""

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
    """What is in a channel. Its lock is held for a few instructions; nobody waits for anything with it."""

    def __init__(self, max_items: int, max_bytes: int) -> None:
        self.max_items = max_items
        self.max_bytes = max_bytes
        self.lock = forks.lock()
        self.chunks: deque[Chunk] = deque()
        self.senders: deque[Sender] = deque()
        self.readers: list[LoopSignal] = []
        self.items = self.bytes = self.sent = self.taken = self.dropped = 0
        self.closed = False
        self.error: BaseException | None = None

    # those who send

    def weighed(self, items: list[Any], version: int | None, nbytes: int | None) -> Chunk:
        """Return items as they are kept; `PlanError` if there will never be room for so many."""
        weight = (len(items) * weight_of(items[0]) if items else 0) if nbytes is None else nbytes
        if len(items) > self.max_items or weight > self.max_bytes:
            raise PlanError(
                f"{len(items)} items of {weight} bytes do not fit into a channel of {self.max_items} items and "
                f"{self.max_bytes} bytes: send them in parts, or make Channel(max_items=, max_bytes=) larger"
            )
        return Chunk(items, weight, version, time.monotonic())

    def put(self, chunk: Chunk, sender: Sender | None = None) -> bool:
        """Add what is sent, unless there is no room or somebody else waits for it longer."""
        with self.lock:
            if self.closed:
                raise ClosedError("the channel is closed, and takes nothing more")
            if (self.senders and self.senders[0] is not sender) or not self.fits(chunk):
                if sender is not None:
                    sender.woken = False
                return False
            if sender is not None:
                self.senders.popleft()
            count = len(chunk.items)
            if count:
                self.chunks.append(chunk)
                self.items += count
                self.bytes += chunk.nbytes
                self.sent += count
            self.wake_sender()
        for reader in self.readers:
            reader.notify()
        return True

    async def put_later(self, chunk: Chunk) -> None:
        """Add what is sent as soon as there is room, and those who waited before have had their turn."""
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
        """Wake whoever waits longest, if there is room for what he sends."""
        if self.senders and not self.senders[0].woken and (self.closed or self.fits(self.senders[0].chunk)):
            self.senders[0].wake()

    def full(self, chunk: Chunk) -> str:
        """Say why there was no room."""
        return (
            f"the channel holds {self.items} of {self.max_items} items, {self.bytes} of {self.max_bytes} bytes, and "
            f"has no room for {len(chunk.items)} more of {chunk.nbytes} bytes: send them again later, or await send()"
        )

    def end(self, error: BaseException | None) -> None:
        """Take nothing more; the first to end it says why."""
        with self.lock:
            if self.closed:
                return
            self.closed, self.error = True, error
            self.wake_sender()
            senders = list(self.senders)
        for sender in senders:
            sender.wake()
        for reader in self.readers:
            reader.notify()

    # those who read

    @contextmanager
    def read_by(self, reader: LoopSignal) -> Generator[None]:
        """Notify a reader of what is sent meanwhile."""
        with self.lock:
            self.readers = [*self.readers, reader]
        try:
            yield
        finally:
            with self.lock:
                self.readers = [other for other in self.readers if other is not reader]

    def ready(self) -> bool:
        """Return whether there is something to take, or will be nothing any more."""
        return self.items > 0 or self.closed

    def take(self, limit: int, stale: Callable[[float, int | None], bool] | None) -> Taken | None:
        """Return at most so many items, none that came too early or of an old version; `None` if there is none."""
        with self.lock:
            if stale is not None:
                self.drop(stale)
            found: list[Any] = []
            start = self.taken + self.dropped
            while self.chunks and len(found) < limit:
                if found and stale is not None and stale(self.chunks[0].since, self.chunks[0].version):
                    break
                found = self.head(found, limit)
            self.taken += len(found)
            self.items -= len(found)
            if found:
                self.wake_sender()
        return Taken(start, found) if found else None

    def head(self, found: list[Any], limit: int) -> list[Any]:
        """Return what was found and what may follow of the first chunk; its bytes are free when it is used up."""
        chunk = self.chunks[0]
        more = len(chunk.items) - chunk.taken
        if len(found) + more > limit:
            stop = chunk.taken + limit - len(found)
            found += chunk.items[chunk.taken : stop]
            chunk.taken = stop
            return found
        self.chunks.popleft()
        self.bytes -= chunk.nbytes
        part = chunk.items[chunk.taken :] if chunk.taken else chunk.items
        if not found:
            return part
        found += part
        return found

    def drop(self, stale: Callable[[float, int | None], bool]) -> None:
        """Leave out what stands first and is stale."""
        while self.chunks and stale(self.chunks[0].since, self.chunks[0].version):
            chunk = self.chunks.popleft()
            count = len(chunk.items) - chunk.taken
            self.dropped += count
            self.items -= count
            self.bytes -= chunk.nbytes
            self.wake_sender()

    def stats(self) -> dict[str, int]:
        """Return what there is, has been, and waits."""
        with self.lock:
            return {
                "items": self.items,
                "bytes": self.bytes,
                "sent": self.sent,
                "taken": self.taken,
                "dropped": self.dropped,
                "waiting": len(self.senders),
            }
