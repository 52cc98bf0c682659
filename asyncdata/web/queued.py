"""The source that reads a queue on a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, cast, final

from asyncdata.errors import ResumeError
from asyncdata.executors.iterator_bridge import IteratorBridge
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import ELSEWHERE, PHYSICAL
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.source_state import RestorableItem, SourceSnapshot
from asyncdata.runtime.tickets import Ordinals, Position, Ticket, Tickets
from asyncdata.sources.iterators import IteratorSource
from asyncdata.sources.stateful import SnapshotTickets, StreamPlace
from asyncdata.web.kept_message import KeptMessage
from asyncdata.web.queue_reader import Message, MessagesRemovedError, Queue, QueueReader

__all__ = ("Queued",)


@dataclass(frozen=True, eq=False)
class Queued(IteratorSource):
    """The messages of a queue, in order."""

    queue: Queue = field(repr=False, metadata=ELSEWHERE)
    complete: bool = field(default=False, repr=False, metadata=PHYSICAL)
    """Whether messages that were removed end it, because the others are found by their numbers."""
    keep: bool = field(default=False, repr=False, metadata=PHYSICAL)
    """Whether it gives messages as they are kept."""

    def pump(self, scope: Scope, place: StreamPlace) -> IteratorBridge:
        reader = self.queue.reader()
        if place.state is not None:
            self.parse_position(json.loads(place.state), reader.resume)
        elif place.number:
            raise ResumeError(f"{self.label()}: the state has no offset in the queue")
        return QueueBridge(scope, reader, place, self.complete, self.keep)

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        return super(Queued, replace(self, complete=True)).fetch(scope, want, tickets)

    def check_reached(self, position: Position, expected: Position) -> None:
        """Raise if messages were removed among those that are read again: they are found by their numbers."""
        places = cast("list[dict[str, Any]]", [one for one in (position, expected) if isinstance(one, dict)])
        if len(places) == 2:
            there, then = [place["state"]["after"] for place in places]
            if None not in (there, then) and there != then:
                raise ResumeError(
                    f"{self.label()}: messages that the state needs again were removed; start without the state"
                )

    def tickets(self, pump: IteratorBridge, start: int, stop: int) -> Tickets:
        assert isinstance(pump, QueueBridge)
        return pump.tickets(start, stop)

    @property
    def own_order(self) -> str:
        reader = self.queue.reader()
        if reader.group is not None:
            return "gives each message to one reader of the group"
        return "begins at the next message in each: give start='oldest'" if reader.start == "new" else ""

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
    """Gives the messages of a reader, on the engine's loop."""

    def __init__(self, scope: Scope, reader: QueueReader[Any], place: StreamPlace, complete: bool, keep: bool) -> None:
        self.reader = reader
        self.number = place.first
        """The number of the next message."""
        self.goal = place.number
        self.complete = complete
        self.keep = keep
        self.ready: list[Message] = []
        self.taken = 0
        self.known: Any = None
        """What is known before the next message."""
        self.offsets: Sequence[Any] = ()
        self.knowns: Sequence[Any] = ()
        """Of the messages that were given last."""
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
            except Exception as error:
                self.over = not isinstance(error, MessagesRemovedError)
                if not self.over and (self.complete or self.number < self.goal):
                    raise ResumeError(f"{error}; the state needs them again, so start without it") from error
                return self.failed(error)
        part = self.ready[self.taken : self.taken + limit]
        if not part:
            return []
        self.offsets, self.knowns, contents = zip(*part, strict=True)
        self.taken += len(part)
        self.snapshots = [self.snapshot(self.offsets[0], None, self.known)]
        self.number += len(part)
        self.known = self.knowns[-1]
        return [*map(self.kept, self.offsets, contents)] if self.keep else list(contents)

    def kept(self, offset: object, content: Any) -> KeptMessage:
        """Return a message as it is kept; of one that is no element, the error has what was sent."""
        sent: Any = getattr(content.error, "sent", None) if isinstance(content, Failure) else content
        form = "bytes" if isinstance(sent, bytes) else "msgpack"
        return KeptMessage(self.reader.stream, str(offset), form, copy(sent), content)

    async def read(self) -> None:
        """Read messages; if there are none, the queue has ended."""
        self.ready, self.taken = [], 0
        await self.reader.ensure_connected()
        self.connected = True
        self.ready = await self.reader.messages()
        self.known = self.reader.known_before
        self.over = not self.ready

    def failed(self, error: Exception) -> list[Any]:
        """Return an error in the place of the next message; after it that message comes."""
        self.offsets = ()
        if self.connected:
            at, after = self.reader.expected, self.reader.offset
            self.snapshots = [self.snapshot(at, after, self.known)]
            self.number += 1
            self.known = self.reader.known
            self.snapshots.append(self.snapshot(at, after, self.known))
        return [Failure(error, True)]

    def snapshot(self, at: Any, after: Any, known: Any) -> SourceSnapshot:
        """Return the state from which the next message can be read again."""
        state = self.reader.state(at, after, known)
        return SourceSnapshot(self.number, state if isinstance(state, ResumeError) else json.dumps(state))

    def tickets(self, start: int, stop: int) -> Tickets:
        """Return the tickets of what was given last."""
        if not self.offsets:
            return SnapshotTickets(start, stop, self.snapshots) if self.snapshots else Ordinals(start, stop)
        return MessageTickets(start, self.snapshots[0], self.offsets, self.knowns, self.reader)

    def snapshots_of(self, stop: int) -> list[SourceSnapshot]:
        return self.snapshots

    def stop(self) -> None:
        self.stopped.set()


@final
class MessageTickets(Tickets):
    """The tickets of messages that were given together.

    Those that are held are read again from the first of them on. The position after some messages does not need them,
    because the server may have removed what was delivered.
    """

    __slots__ = ("first", "knowns", "offsets", "reader", "start")

    def __init__(
        self, start: int, first: SourceSnapshot, offsets: Sequence[Any], knowns: Sequence[Any], reader: QueueReader[Any]
    ) -> None:
        self.start = start
        self.first = first
        self.offsets = offsets
        self.knowns = knowns
        self.reader = reader

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, index: int) -> RestorableItem:
        return RestorableItem.at(self.start + index, self.first)

    def at(self, count: int) -> Position:
        number = self.start + count
        if not count or isinstance(self.first.state, ResumeError):
            return self.first.position(number)
        state = self.reader.state(None, self.offsets[count - 1], self.knowns[count - 1])
        return {"state": state, "skip": 0, "number": number}
