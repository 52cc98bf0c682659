"""A queue that is a list: for laws, which run without servers. It obeys what `QueueReader` asks of a queue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, ClassVar

from asyncdata.web.queue_reader import Message, MessagesRemovedError, QueueReader

__all__ = ("ListQueue",)


class ListQueue:
    """Messages with the offsets 1, 2, ..., of which `at_once` are read together."""

    def __init__(self, items: Iterable[Any], at_once: int, follow: bool = False) -> None:
        self.held = dict(enumerate(items, 1))
        self.last = len(self.held)
        self.at_once = at_once
        self.follow = follow
        self.made = 0
        self.readers: list[ListReader] = []

    def reader(self) -> ListReader:
        return ListReader(self)

    def send(self, item: Any) -> int:
        """Add a message, and return its offset."""
        self.last += 1
        self.held[self.last] = item
        self.wake()
        return self.last

    def remove(self, offset: int) -> None:
        """Remove a message."""
        self.held.pop(offset, None)

    def renew(self) -> None:
        """Delete the queue, and make an empty one in its place."""
        self.held, self.last, self.made = {}, 0, self.made + 1
        self.wake()

    def wake(self) -> None:
        """Answer readers that wait, also if there is no message for them."""
        for reader in self.readers:
            reader.loop.call_soon_threadsafe(reader.came.set)


class ListReader(QueueReader[int]):
    """Knows how many messages behind an offset there must be, and up to which one: `(count, last)`."""

    kind: ClassVar[type] = int

    def __init__(self, queue: ListQueue) -> None:
        super().__init__("from_list_queue", None, queue.follow, give_up_seconds=1)
        self.queue = queue
        self.came = asyncio.Event()

    async def connect(self) -> None:
        await asyncio.sleep(0)
        self.loop = asyncio.get_running_loop()
        self.queue.readers.append(self)
        self.check_made(str(self.queue.made))
        if self.expected is None:
            self.offset = self.offset or 0

    async def receive(self) -> list[Message]:
        await asyncio.sleep(0)
        first = (self.offset or 0) if self.expected is None else self.expected - 1
        self.came.clear()
        self.check_made(str(self.queue.made))
        if self.follow and self.queue.last <= first:
            await self.came.wait()
        self.check_made(str(self.queue.made))
        there = [(offset, item) for offset, item in self.queue.held.items() if offset > first]
        count, last = (len(there), self.queue.last) if self.known is None else self.known
        lost = count + self.queue.last - last - len(there)
        if lost:
            self.known = (len(there), self.queue.last)
            raise MessagesRemovedError(f"{self.name}: {lost} messages were removed before they were read")
        return [
            Message(offset, (len(there) - place, self.queue.last), item)
            for place, (offset, item) in enumerate(there[: self.queue.at_once], 1)
        ]

    async def disconnect(self) -> None:
        await asyncio.sleep(0)
        if self in self.queue.readers:
            self.queue.readers.remove(self)

    def transient_errors(self) -> tuple[type[Exception], ...]:
        return (OSError,)
