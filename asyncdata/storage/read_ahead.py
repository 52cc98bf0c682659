"""ReadAhead: reads an object in order by parallel requests for its parts; more of them if the reader waits.

How many requests all readers make to one endpoint at once is bounded by `request_limit`.

Reasons and measurements: docs/design.md, "Objects in stores".
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from asyncdata.storage.base import Entry, Runner, Stream
from asyncdata.storage.request_limit import Limit

__all__ = ("LARGEST_PART", "Ahead", "ObjectPart", "ReadAhead")

T = TypeVar("T")

FIRST_PART: Final = 1 << 20
"""Bytes of the first request: a reader may want only one record."""

LARGEST_PART: Final = 8 << 20
"""The largest request in bytes: each is twice as large as the one before, as more reading predicts more."""

MOST_AHEAD: Final = 56 << 20
"""The most bytes that the reader of one object may hold."""


class ObjectPart(NamedTuple):
    """Some bytes of an object, and the object's entry."""

    data: memoryview
    entry: Entry


class PartReader(Protocol):
    """A store that objects are read from in parts."""

    @property
    def limit(self) -> Limit:
        """How many requests may be made to it at once."""
        ...

    async def read_part(self, path: str, start: int, stop: int, expected: Entry | None = None) -> ObjectPart:
        """Return the bytes from `start` to before `stop`, or to the object's end, of the version that is `expected`."""
        ...


class Ahead(Generic[T]):
    """What was requested ahead, and may have arrived."""

    def __init__(self, ask: Callable[[], Awaitable[T]], runner: Runner) -> None:
        self.ready: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.ready.add_done_callback(mark_retrieved)
        self._ask = ask
        self.cancel = runner.spawn(self._fetch)

    async def _fetch(self) -> None:
        """Wait for it, and set it or its error as the result."""
        try:
            found = await self._ask()
        except asyncio.CancelledError:
            self.ready.cancel()
            raise
        except Exception as error:  # noqa: BLE001  it is raised where the result is read
            if not self.ready.done():
                self.ready.set_exception(error)
        else:
            if not self.ready.done():
                self.ready.set_result(found)


def mark_retrieved(ready: asyncio.Future[Any]) -> None:
    """Mark an error as retrieved, so that asyncio does not log it if the result is never read."""
    if not ready.cancelled():
        ready.exception()


class ReadAhead(Stream):
    """The bytes of an object in blocks; sizes are in bytes. It belongs to the loop that reads it."""

    def __init__(self, store: PartReader, path: str, block_bytes: int, offset: int, runner: Runner | None) -> None:
        self._store = store
        self._path = path
        self._block_bytes = block_bytes
        self._asked = offset
        self._runner = runner
        self._share = None if runner is None else runner.budget.share()
        self._entry: Entry | None = None
        self._part = memoryview(b"")
        self._size = FIRST_PART
        self._ahead: deque[Ahead[ObjectPart]] = deque()
        self._count = 0 if runner is None else 1

    async def begin(self) -> Entry:
        if self._entry is None:
            part = await self._store.read_part(self._path, self._asked, self._asked + self._size)
            self._entry, self._part = part.entry, part.data
            self._asked += len(part.data)
            self._ask()
        return self._entry

    async def __anext__(self) -> memoryview:
        entry = await self.begin()
        if not self._part:
            if not self._ahead and self._asked >= entry.size:
                raise StopAsyncIteration
            self._part = await self._next()
            self._ask()
        block, self._part = self._part[: self._block_bytes], self._part[self._block_bytes :]
        return block

    async def aclose(self) -> None:
        self._part = memoryview(b"")
        for ahead in self._ahead:
            ahead.cancel.cancel()
        self._ahead.clear()

    async def _next(self) -> memoryview:
        """Wait for the next part; if it has not arrived and the limits allow, read further ahead from now on."""
        if not self._ahead:
            return (await self._store.read_part(self._path, *self._next_part(), self._entry)).data
        ahead = self._ahead[0]
        if not ahead.ready.done() and not self._store.limit.crowded and self._may_grow():
            self._count += 1
            self._ask()
        part = await ahead.ready
        self._ahead.popleft()
        return part.data

    def _may_grow(self) -> bool:
        """Claim memory for one more part ahead."""
        return self._claim((self._count + 3) * LARGEST_PART)

    def _claim(self, wanted: int) -> bool:
        """Return whether the parts of this object may hold `wanted` bytes together: those requested, the one being
        read, and one more, as a part is copied when it has arrived.
        """
        return wanted <= MOST_AHEAD and (self._share is None or self._share.claim(wanted) >= wanted)

    def _ask(self) -> None:
        """Request parts until enough are ahead."""
        while self._entry is not None and len(self._ahead) < self._count and self._asked < self._entry.size:
            self._request()

    def _request(self) -> None:
        """Request one part in a task."""
        assert self._runner is not None
        ask = partial(self._store.read_part, self._path, *self._next_part(), self._entry)
        self._ahead.append(Ahead(ask, self._runner))

    def _next_part(self) -> tuple[int, int]:
        """Return the start and stop of the next part to request."""
        assert self._entry is not None
        larger = min(2 * self._size, LARGEST_PART)
        if larger > self._size and self._claim((self._count + 2) * larger):
            self._size = larger
        start, self._asked = self._asked, min(self._asked + self._size, self._entry.size)
        return start, self._asked
