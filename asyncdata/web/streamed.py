"""The sources that read an HTTP stream and a WebSocket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from asyncdata.errors import ResumeError
from asyncdata.executors.iterator_bridge import IteratorBridge, LoopBridge, Notify
from asyncdata.executors.scope import Scope
from asyncdata.runtime.block import Block
from asyncdata.runtime.source_state import RestorableItem, SourceSnapshot
from asyncdata.runtime.tickets import Ticket
from asyncdata.sources.iterators import AsyncIterated
from asyncdata.sources.stateful import SnapshotTickets, StreamPlace
from asyncdata.web.http_stream import HttpStreamReader

__all__ = ("HttpStreamed", "WebSocketStreamed")


@dataclass(frozen=True, eq=False)
class HttpStreamed(AsyncIterated):
    """The items of an HTTP stream.

    Events without an id may not come again, and new ones may come between those that do. So a number of items means
    little: there is a state after each item, and items that are read again must lead to the same states.
    """

    def pump(self, scope: Scope, place: StreamPlace) -> IteratorBridge:
        start = partial(self.start, place.state)
        return LoopBridge(scope, scope.consumer_loop, start, place.first, attrgetter("has_id"), place.failures)

    def start(self, state: str | None) -> tuple[AsyncIterator[Any], Notify | None]:
        reader, notify = super().start(state)
        return reader, reader.state_text if isinstance(reader, HttpStreamReader) else notify

    def check_same(self, block: Block, tickets: Sequence[Ticket]) -> None:
        if not isinstance(block.tickets, SnapshotTickets):
            return
        found = {snapshot.number: snapshot.state for snapshot in block.tickets.snapshots}
        for ticket in tickets:
            if isinstance(ticket, RestorableItem) and differs(ticket.snapshot, found):
                raise ResumeError(
                    f"{self.label()}: the server did not send the same events again as before the state was saved, "
                    "perhaps because some have no id and are not stored; start without the state"
                )


@dataclass(frozen=True, eq=False)
class WebSocketStreamed(AsyncIterated):
    """The messages of a WebSocket."""

    @property
    def own_order(self) -> str:
        return "gives each connection the messages from then on: read it in one process"


def differs(saved: SourceSnapshot, found: dict[int, str | ResumeError | None]) -> bool:
    """Return whether the state before an element is another one than was saved."""
    now = found.get(saved.number)
    return isinstance(now, str) and isinstance(saved.state, str) and json.loads(now) != json.loads(saved.state)
