"""A queue that is a list: for laws, which run without servers. It obeys what `QueueReader` asks of a queue."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar

from asyncdata.web.queue_reader import QueueReader

__all__ = ("ListQueue",)


@dataclass(frozen=True)
class ListQueue:
    """Messages with the offsets 1, 2, ..., of which `at_once` are read together."""

    items: tuple[Any, ...]
    at_once: int

    def reader(self) -> ListReader:
        return ListReader(self)


class ListReader(QueueReader[int]):
    kind: ClassVar[type] = int

    def __init__(self, queue: ListQueue) -> None:
        super().__init__("from_list_queue", None, follow=False, give_up_seconds=1)
        self.queue = queue

    async def connect(self) -> None:
        await asyncio.sleep(0)
        if self.expected is None:
            self.offset = self.offset or 0

    async def receive(self) -> list[tuple[int, Any]]:
        await asyncio.sleep(0)
        first = (self.offset or 0) if self.expected is None else self.expected - 1
        return [*enumerate(self.queue.items[first : first + self.queue.at_once], first + 1)]

    async def disconnect(self) -> None:
        await asyncio.sleep(0)

    def transient_errors(self) -> tuple[type[Exception], ...]:
        return (OSError,)
