"""The source that reads a queue on a server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, final

from asyncdata.errors import ResumeError
from asyncdata.executors.iterator_bridge import IteratorBridge
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import ELSEWHERE
from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.source_state import SourceSnapshot
from asyncdata.sources.iterators import IteratorSource
from asyncdata.sources.stateful import StreamPlace
from asyncdata.web.queue_reader import Message, Queue, QueueReader

__all__ = ("Queued",)


@dataclass(frozen=True, eq=False)
class Queued(IteratorSource):
    """The messages of a queue, in order."""

    queue: Queue = field(repr=False, metadata=ELSEWHERE)

    def pump(self, scope: Scope, place: StreamPlace) -> IteratorBridge:
        reader = self.queue.reader()
        if place.state is not None:
            self.parse_position(json.loads(place.state), reader.resume)
        elif place.number:
            raise ResumeError(f"{self.label()}: the state has no offset in the queue")
        return QueueBridge(scope, reader, place.first)

    @property
    def may_grow(self) -> bool:
        reader = self.queue.reader()
        return reader.group is None and not reader.follow

    @property
    def resume_note(self) -> str:
        reader = self.queue.reader()
        return f"{reader.name} resumes at its offset" if reader.group is None else f"{reader.name} has no state"

    def label(self) -> str:
        return self.queue.reader().name


@final
class QueueBridge(IteratorBridge):
    """Gives the messages of a reader, on the engine's loop. Messages that are given together have one snapshot."""

    def __init__(self, scope: Scope, reader: QueueReader[Any], first: int) -> None:
        self.reader = reader
        self.number = first
        """The number of the next message."""
        self.ready: list[Message[Any]] = []
        self.taken = 0
        self.snapshots: list[SourceSnapshot] = []
        self.connected = self.over = False
        self.stopped = asyncio.Event()
        scope.owned.adopt(scope.loop.create_task(self.close_at_end()))

    async def close_at_end(self) -> None:
        """Close the connection when reading ends."""
        try:
            await self.stopped.wait()
        finally:
            await self.reader.close()

    @property
    def begun(self) -> bool:
        return self.connected

    async def pull(self, limit: int) -> list[Any] | Block:
        if self.taken == len(self.ready) and not self.over:
            try:
                await self.read()
            except ResumeError:
                raise
            except Exception as error:  # noqa: BLE001  in the place of the next message
                self.over = True
                return self.failed(error)
        part = self.ready[self.taken : self.taken + limit]
        if part:
            self.taken += len(part)
            self.snapshots = [self.snapshot(at=part[0][0])]
            self.number += len(part)
            self.snapshots.append(self.snapshot(after=part[-1][0]))
        return [message for _, message in part]

    async def read(self) -> None:
        """Read messages; if there are none, the queue has ended."""
        self.ready, self.taken = [], 0
        await self.reader.ensure_connected()
        self.connected = True
        self.ready = await self.reader.messages()
        self.over = not self.ready

    def failed(self, error: Exception) -> list[Any]:
        """Return an error in the place of the next message; after it that message comes."""
        if self.connected:
            at, after = self.reader.expected, self.reader.offset
            self.snapshots = [self.snapshot(at, after)]
            self.number += 1
            self.snapshots.append(self.snapshot(at, after))
        return [Failure(error, True)]

    def snapshot(self, at: Any = None, after: Any = None) -> SourceSnapshot:
        """Return the state from which the next message can be read again."""
        state = self.reader.state(at, after)
        return SourceSnapshot(self.number, state if isinstance(state, ResumeError) else json.dumps(state))

    def snapshots_of(self, stop: int) -> list[SourceSnapshot]:
        return self.snapshots

    def stop(self) -> None:
        self.stopped.set()
