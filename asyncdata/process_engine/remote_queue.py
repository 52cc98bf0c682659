"""One run of a pipeline as its consumer sees it, and tickets that ask the pipeline's process for positions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, final

from asyncdata.errors import StageError, annotate
from asyncdata.executors.function_call import noted
from asyncdata.executors.process.task import RemoteError
from asyncdata.process_engine.guarded_elements import UnreadableElement
from asyncdata.process_engine.protocol import Acknowledgement, BlockData, OriginQuery, PositionQuery, StatisticsQuery
from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.queue import BlockQueue, BufferSize, LoopSignal, ThreadSignal
from asyncdata.runtime.tickets import Position, Start, Ticket, Tickets

__all__ = ("GoneError", "RemoteBlockQueue", "RunReference")


UNREADABLE: Final = "the element came from the pipeline's process, and cannot be unpickled in this process"


class GoneError(Exception):
    """The process has ended; never seen by users."""


class MessageTarget(Protocol):
    """How messages get to the process."""

    def send(self, message: object) -> None:
        """Send a message; it is dropped if the process has ended."""
        ...

    def ask(self, run: int, question: PositionQuery | OriginQuery | StatisticsQuery) -> Any:
        """Return the answer to a question; `GoneError` if the process has ended."""
        ...


class RunReference(NamedTuple):
    """What is known here of a run in another process: how to ask it, its number, where it started, and whether in
    order.

    `label` names the transfer of its elements in errors.
    """

    target: MessageTarget
    run: int
    start: Start
    in_order: bool
    label: str

    def position(self, block: int, count: int, delivered: int) -> Position:
        """Return where to resume after the first elements of a block, when `delivered` have been delivered in all.

        If the process has died, that is so many elements after the start of the run, unless their order was not fixed.
        """
        try:
            answer = self.target.ask(self.run, PositionQuery(block, count))
        except GoneError:
            if self.in_order:
                return {"skip": delivered, "from": self.start.position_with_skip()}
            raise StageError(
                "the pipeline's process has ended, and only that process had the list of delivered elements, since "
                "their order is not fixed: resume from an earlier state"
            ) from None
        if isinstance(answer, RemoteError):
            raise answer.failure(None).error
        return answer

    def origins(self, block: int, start: int, stop: int) -> list[Any]:
        """Return the tickets of some elements of a block, as JSON; `StageError` if the process has died."""
        try:
            answer = self.target.ask(self.run, OriginQuery(block, start, stop))
        except GoneError:
            raise StageError(
                "the pipeline's process has ended, and only that process knew where its elements came from"
            ) from None
        if isinstance(answer, RemoteError):
            raise answer.failure(None).error
        return answer


class RemoteWriterSignal(LoopSignal):
    """Represents a writer in another process, which gets messages about what was read."""

    def __init__(self) -> None:
        self.armed = False


class RemoteBlockQueue(BlockQueue):
    """The queue in which the blocks of a run in another process arrive.

    It tells the process what was read, but not each single item. Its contents do not refer to it, so it is freed, with
    the memory and the process, as soon as its reader is.
    """

    def __init__(self, reference: RunReference) -> None:
        super().__init__(BufferSize(0), RemoteWriterSignal(), ThreadSignal())
        self.reference = reference
        self.remote_space = 0
        self.acknowledged = 0
        self.arrived = 0
        self.over = threading.Event()
        self.on_over: Callable[[], object] | None = None

    # the reader's side

    def release(self, taken: int) -> None:
        super().release(taken)
        if 0 < self.remote_space <= 2 * (self.taken - self.acknowledged):
            self.send_acknowledgement()

    def request_more(self) -> None:
        super().request_more()
        self.send_acknowledgement()

    def send_acknowledgement(self) -> None:
        """Return how much was read, and whether the reader waits."""
        self.acknowledged = self.taken
        blocks = self.arrived - len(self.blocks) - self.undelivered
        self.reference.target.send(Acknowledgement(self.reference.run, self.taken, blocks, bool(self.reader_waits)))

    # the pipeline's side

    def receive(self, data: BlockData, space: int) -> None:
        """Put in a block that has arrived from a buffer with `space` free places."""
        self.remote_space = space
        count = sum(map(len, data.columns)) or len(data.items)
        tickets = RemoteTickets(self.reference, self.arrived, self.written, count)
        if data.columns:
            self.put(Block.of_columns(data.columns, tickets))
        else:
            items = data.items
            if data.wrapped:
                items = [self.unpack_item(item, tickets[place]) for place, item in enumerate(items)]
            self.put(Block(items, tickets, data.wrapped and Failure in set(map(type, items))))
        self.arrived += 1

    def unpack_item(self, item: Any, ticket: Ticket) -> Any:
        """Return an item as it is in this process, or the failure in its place."""
        if type(item) is UnreadableElement:
            failure = noted(item.error, self.reference.label, ticket)
            annotate(failure.error, UNREADABLE)
            return failure
        return item.failure(None) if type(item) is RemoteError else item

    def end(self, error: BaseException | None = None) -> None:
        """Mark the end of the data and of the run."""
        self.finish(error)
        self.over.set()
        if self.on_over is not None:
            with suppress(RuntimeError):  # the consumer's loop has been closed
                self.on_over()


@final
class RemoteTickets(Tickets):
    """The tickets of a block, which are in another process; that is asked when they are needed."""

    __slots__ = ("before", "count", "number", "reference")

    def __init__(self, reference: RunReference, number: int, before: int, count: int) -> None:
        self.reference = reference
        self.number = number
        self.before = before
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Ticket:
        return self.before + index

    @property
    def elsewhere(self) -> bool:
        return True

    def encoded(self, start: int, stop: int) -> list[Any]:
        return self.reference.origins(self.number, start, stop)

    def at(self, count: int) -> Position:
        return self.reference.position(self.number, count, self.before + count)
