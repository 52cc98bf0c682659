"""A queue that is a list: for laws, which run without servers. It obeys what `QueueReader` asks of a queue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, ClassVar

from asyncdata.web.queue_reader import QueueReader

__all__ = ("ListQueue",)


class ListQueue:
    """Messages with the offsets 1, 2, ..., of which `at_once` are read together."""

    def __init__(self, items: Iterable[Any], at_once: int, follow: bool = False) -> None:
        self.held = dict(enumerate(items, 1))
        self.last = len(self.held)
        self.at_once = at_once
        self.follow = follow
        self.readers: list[ListReader] = []

    def reader(self) -> ListReader:
        return ListReader(self)

    def send(self, item: Any) -> int:
        """Add a message, and return its offset."""
        self.last += 1
        self.held[self.last] = item
        for reader in self.readers:
            reader.loop.call_soon_threadsafe(reader.came.set)
        return self.last


class ListReader(QueueReader[int]):
    kind: ClassVar[type] = int

    def __init__(self, queue: ListQueue) -> None:
        super().__init__("from_list_queue", None, queue.follow, give_up_seconds=1)
        self.queue = queue
        self.came = asyncio.Event()

    async def connect(self) -> None:
        await asyncio.sleep(0)
        self.loop = asyncio.get_running_loop()
        self.queue.readers.append(self)
        if self.expected is None:
            self.offset = self.offset or 0

    async def receive(self) -> list[tuple[int, Any]]:
        await asyncio.sleep(0)
        first = (self.offset or 0) if self.expected is None else self.expected - 1
        while self.follow and self.queue.last <= first:
            self.came.clear()
            if self.queue.last <= first:
                await self.came.wait()
        return [(offset, item) for offset, item in self.queue.held.items() if offset > first][: self.queue.at_once]

    async def disconnect(self) -> None:
        await asyncio.sleep(0)
        if self in self.queue.readers:
            self.queue.readers.remove(self)

    def transient_errors(self) -> tuple[type[Exception], ...]:
        return (OSError,)
