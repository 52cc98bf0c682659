"""The source that reads a channel of this process: items that were posted or put become elements."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from asyncdata.elements.columns import ColumnBatch
from asyncdata.elements.record_store import RecordStore
from asyncdata.errors import PlanError, ResumeError
from asyncdata.executors.function_call import noted
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import ELSEWHERE, Node
from asyncdata.graph.stages import Produce
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.tickets import Ordinals, Position, Ticket, Tickets, WrappedTickets
from asyncdata.web.channel import Channel, Taken, queue_of
from asyncdata.web.pace import ChannelReader
from asyncdata.web.schema import Schema

__all__ = ("Freshness", "Received")


@dataclass(frozen=True)
class Freshness:
    """The largest age and the smallest version of items."""

    max_age: float | None = None
    min_version: int | Callable[[], int] | None = None

    @staticmethod
    def of(max_age: object, min_version: object) -> Freshness | None:
        """Return the limits that the user asked for; `None` without limits."""
        if max_age is None and min_version is None:
            return None
        if max_age is not None and (
            isinstance(max_age, bool) or not isinstance(max_age, (int, float)) or not max_age > 0
        ):
            raise PlanError(f"from_channel(max_age=) must be a number of seconds above 0, got {max_age!r:.80}")
        is_number = isinstance(min_version, int) and not isinstance(min_version, bool)
        if min_version is not None and not is_number and not callable(min_version):
            raise PlanError(
                "from_channel(min_version=) must be an integer, or a function that returns the current one, "
                f"got {min_version!r:.80}"
            )
        return Freshness(max_age, cast("int | Callable[[], int] | None", min_version))

    def now(self, clock: Callable[[], float]) -> Callable[[float, int | None], bool]:
        """Return a function that says whether items are stale now, by their time and their version, if any."""
        oldest = None if self.max_age is None else clock() - self.max_age
        least = self.min_version() if callable(self.min_version) else self.min_version

        def stale(since: float, version: int | None) -> bool:
            too_old = oldest is not None and since < oldest
            return too_old or (least is not None and version is not None and version < least)

        return stale


@dataclass(frozen=True, eq=False)
class Received(Node):
    """The items that are sent to a channel, until it is closed."""

    channel: Channel = field(repr=False, metadata=ELSEWHERE)
    freshness: Freshness | None = field(default=None, repr=False, metadata=ELSEWHERE)
    schema: Schema | None = field(default=None, repr=False, metadata=ELSEWHERE)

    def stage(self) -> Produce:
        return Produce(self.blocks)

    @property
    def once(self) -> bool:
        return True

    @property
    def repeatable(self) -> bool:
        return False

    @property
    def own_order(self) -> str:
        return "gives each item to one reader"

    @property
    def process_bound_reason(self) -> str:
        return "a Channel belongs to its process"

    @property
    def resume_note(self) -> str:
        return "from_channel(Channel) cannot resume from a state, because it does not store items"

    def label(self) -> str:
        return "from_channel(Channel)"

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        raise self.gone()

    def gone(self) -> ResumeError:
        return ResumeError(
            "from_channel(Channel): a Channel does not store items that were read, so a run cannot resume from a "
            "state; start without it, or use a DurableChannel"
        )

    def tickets(self, start: int, stop: int) -> Tickets:
        """Return the tickets of items, whose positions are of this channel alone."""
        channel = queue_of(self.channel).id
        return WrappedTickets(
            Ordinals(start, stop), lambda _, number: {"state": channel, "skip": number, "number": number}
        )

    def block(self, taken: Taken) -> Block:
        """Return items of the declared type, each with a failure in its place if it is none."""
        tickets = self.tickets(taken.start, taken.start + len(taken.items))
        found, records = taken.items, taken.records
        if records is not None:
            if self.schema is None or self.schema.records is records:
                return Block.of_columns([ColumnBatch.of_store(RecordStore(found, records))], tickets)
            found = records.elements(found)
        if self.schema is None:
            return Block(found, tickets)
        items: list[Any] = []
        for place, item in enumerate(found):
            try:
                items.append(self.schema.convert(item))
            except Exception as error:  # noqa: BLE001  of a validator of the user's, too
                items.append(noted(error, self.label(), taken.start + place))
        return Block(items, tickets, Failure in set(map(type, items)))

    async def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        """Yield the items that were sent, as many as are wanted, and wait for more."""
        if position is not None:
            raise self.gone()
        queue = queue_of(self.channel)
        if queue.closed and not queue.items and (queue.taken or queue.dropped):
            raise PlanError(
                "from_channel(Channel): the channel is closed and was read to its end, and it can be read only once; "
                "for several epochs store the elements with cache()"
            )
        reader = ChannelReader(scope.loop)
        with queue.read_by(reader):
            while True:
                await reader.until(queue.ready, want.items)
                stale = None if self.freshness is None else self.freshness.now(time.monotonic)
                if (taken := queue.take(want.items, stale)) is not None:
                    reader.took(len(taken.items) < want.items)
                    yield self.block(taken)
                elif queue.closed and not queue.items:
                    break
            if queue.error is not None:
                number = queue.sent
                failure = noted(queue.error, self.label(), number, of_source=True)
                yield Block([failure], self.tickets(number, number + 1), type(failure) is Failure)
