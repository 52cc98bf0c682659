"""What a consumer does with items that fail in its pipeline: leaves them out, or stores them as dead letters."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias, cast, final

from asyncdata.errors import PlanError, annotate
from asyncdata.graph.node import Node, nodes_of
from asyncdata.redaction import redacted
from asyncdata.runtime.tickets import Ticket
from asyncdata.web.dead_letters import DeadLetters, Place, places_of
from asyncdata.web.folder import ChannelFolder
from asyncdata.web.keeping import keeping
from asyncdata.web.schema import Schema
from asyncdata.web.stored import Stored

__all__ = ("FailedItems", "OnError", "beginning_of", "policy_for")

OnError: TypeAlias = Literal["stop", "skip", "dead-letter"]

POLICIES: Final = ("stop", "skip", "dead-letter")

log = logging.getLogger("asyncdata")


@final
class FailedItems:
    """Called with each error of a pipeline and the ticket of its element, instead of raising the error.

    Where dead letters are stored, the items of the element are on the disk when it returns, so a state behind them says
    that they need not be read again.
    """

    beside_states = True
    """States are those of the pipeline without it, so a consumer may resume with another `on_error`."""

    def __init__(self, sources: Sequence[Stored] | None, folder: str | None = None) -> None:
        self.sources = sources
        """The channels that keep dead letters, `None` to leave failed items out."""
        self.folder = folder
        """Where the dead letters of queues and streams are kept, if the pipeline reads some."""
        self.kept: dict[str, tuple[DeadLetters, bool]] | None = None
        self.elements = 0
        """How many elements failed."""
        self.items = 0
        """How many items became dead letters."""

    @property
    def label(self) -> str:
        """What dropped them, in statistics and on the dashboard."""
        return f"Consumer(on_error={'skip' if self.sources is None else 'dead-letter'!r})"

    def __call__(self, error: Exception, ticket: Ticket) -> None:
        self.elements += 1
        places = list(places_of(ticket))
        where = f", {places[0]}" if len(places) == 1 else f", {len(places)} items" if places else ""
        if self.sources is None:
            log.warning("the consumer left out an element%s: %s", where, redacted(repr(error))[:300])
            return
        match self.store(error, places):
            case 0:
                done = "left out what is a dead letter already"
            case 1:
                done = "stored a dead letter"
            case added:
                done = f"stored {added} dead letters"
        log.warning("the consumer %s%s: %s", done, where, redacted(repr(error))[:300])

    def store(self, error: Exception, places: Sequence[Place]) -> int:
        """Store some items as dead letters; raise the error if they are not of these channels, queues and streams."""
        if self.kept is None:
            self.kept = {} if self.folder is None else {"": (DeadLetters(ChannelFolder(self.folder)), False)}
            for source in self.sources or ():
                whole = source.decode is not None and not isinstance(source.decode, Schema)
                self.kept[source.folder.id] = (DeadLetters(source.folder), whole)
        if not places or any(place.channel not in self.kept for place in places):
            annotate(error, "it is not an error of items that were read, so nothing can become a dead letter")
            raise error
        added = 0
        for channel in dict.fromkeys(place.channel for place in places):
            letters, whole = self.kept[channel]
            added += letters.add([place for place in places if place.channel == channel], error, whole)
        self.items += added
        return added

    def __reduce__(self) -> Any:
        return FailedItems, (self.sources, self.folder)


def policy_for(plan: Node, on_error: object, dead_letters: object = None) -> tuple[Node, FailedItems | None]:
    """Return the plan that a consumer runs, and what it does with errors of it; `None` to raise them."""
    if on_error not in POLICIES:
        raise PlanError(f"Consumer(on_error=) must be 'stop', 'skip' or 'dead-letter', got {on_error!r:.80}")
    if on_error != "dead-letter":
        if dead_letters is not None:
            raise PlanError(f"Consumer(dead_letters=) needs on_error='dead-letter', got on_error={on_error!r}")
        return plan, None if on_error == "stop" else FailedItems(None)
    kept, sources = keeping(plan), [node for node in nodes_of(plan) if isinstance(node, Stored)]
    if (kept is plan and not sources) or any(source.ack != "state" for source in sources):
        raise PlanError(
            "Consumer(on_error='dead-letter') needs a pipeline that reads a DurableChannel, with ack='state', a queue "
            "or a stream: other sources do not keep the items that they gave; on_error='skip' leaves failed items out"
        )
    return kept, FailedItems(sources, folder_for(dead_letters, kept is not plan))


def folder_for(dead_letters: Any, needed: bool) -> str | None:
    """Return the folder of the dead letters of queues and streams, which is a channel; `None` if there are none."""
    if needed is (dead_letters is None):
        raise PlanError(
            "Consumer(dead_letters=) must be a folder, in which failed messages of the queue or stream are kept"
            if needed
            else "Consumer(dead_letters=) is for queues and streams: those of a DurableChannel are in its own folder"
        )
    if not needed:
        return None
    if not isinstance(dead_letters, (str, os.PathLike)):
        raise PlanError(f"Consumer(dead_letters=) must be the path of a folder, got {dead_letters!r:.80}")
    folder = ChannelFolder(os.fspath(cast("os.PathLike[str]", dead_letters)))
    folder.create()
    return str(folder.path)


def beginning_of(folder: ChannelFolder) -> str | None:
    """Return from where a run without a state reads a channel, if that has items."""
    starts, end = folder.segments(), folder.committed.read() or 0
    if not starts or starts[0] >= end:
        return None
    return (
        f"the consumer has no state, so it reads {folder.path} from its oldest item on, at byte {starts[0]} of {end}: "
        "items that were trained on before come again; give Consumer(state=) the last batches.state_dict()"
    )
