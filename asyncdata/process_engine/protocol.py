"""Messages between the consumer's process and the pipeline's, each small enough to be written to a pipe at once."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, TypeAlias

from asyncdata.elements.columns import ColumnBatch
from asyncdata.executors.process.shm_arena import Message
from asyncdata.options import Options
from asyncdata.runtime.tickets import Position

__all__ = (
    "Acknowledgement",
    "Answer",
    "BeginRun",
    "BlockData",
    "BlockMessage",
    "BlockReadable",
    "EndProcess",
    "ForgetRun",
    "OriginQuery",
    "PositionQuery",
    "Query",
    "Question",
    "Ready",
    "ResendBlock",
    "RunEnded",
    "RunRequest",
    "StatisticsQuery",
    "StopRun",
    "ThreadsEnded",
    "receive",
    "send",
)


class RunRequest(NamedTuple):
    """A run: how the plan is rewritten, the epoch, where it starts, and in which current folder."""

    options: Options
    epoch: int
    start: Position
    folder: str


class BlockData(NamedTuple):
    """A block in the form that is sent: its items, with failures pickled, or their columns.

    `wrapped` says whether some of the items are failures, or pickled apart; `held`, whether the pipeline holds the
    block until the reader reports that it could be unpickled.
    """

    items: list[Any]
    columns: Sequence[ColumnBatch]
    wrapped: bool
    held: bool = False

    def apart(self) -> BlockData:
        """Return the same with each row in memory of its own."""
        return self._replace(items=ColumnBatch.apart(self.columns), columns=()) if self.columns else self


# from the consumer


class BeginRun(NamedTuple):
    """Start a run; the payload is an `RunRequest`."""

    run: int
    payload: Message


class Acknowledgement(NamedTuple):
    """How many items the consumer has taken in all, how many blocks it has given out, and whether it may wait for
    more."""

    run: int
    items: int
    blocks: int
    reader_waits: bool


class PositionQuery(NamedTuple):
    """Where does a run continue after the first elements of a block?"""

    block: int
    delivered: int


class OriginQuery(NamedTuple):
    """Which tickets do some elements of a block have?"""

    block: int
    start: int
    stop: int


class ResendBlock(NamedTuple):
    """Asks for the elements of a block, each pickled apart: as they were sent they cannot be unpickled."""

    block: int


class BlockReadable(NamedTuple):
    """A block that was held could be unpickled."""

    run: int
    block: int


class StatisticsQuery(NamedTuple):
    """Asks for the statistics of the steps."""


Question: TypeAlias = PositionQuery | OriginQuery | ResendBlock | StatisticsQuery


class Query(NamedTuple):
    """Answer a question about a run."""

    run: int
    question: Question
    token: int


class StopRun(NamedTuple):
    """End a run; it may still be asked where it was."""

    run: int


class ForgetRun(NamedTuple):
    """The reader of this run is gone."""

    run: int


class EndProcess(NamedTuple):
    """End the process."""


# from the pipeline


class Ready(NamedTuple):
    """The plan has arrived; else the payload has the error."""

    refusal: Message | None


class BlockMessage(NamedTuple):
    """The next block of a run, with its number, a `BlockData`, and how many items the buffer may hold."""

    run: int
    block: int
    payload: Message
    depth: int


class RunEnded(NamedTuple):
    """A run has ended, because of the error in the payload; without an error this is the end of the data."""

    run: int
    error: Message | None


class ThreadsEnded(NamedTuple):
    """All threads of a run have ended."""

    run: int


class Answer(NamedTuple):
    """The answer to a question: a position, tickets, or a carried error; `None` about a run that could not begin."""

    token: int
    payload: Message | None


def send(connection: Connection, message: object) -> None:
    """Write a message, in one piece: threads and finalizers need no lock for it."""
    connection.send_bytes(pickle.dumps(message, 5))


def receive(connection: Connection) -> Any:
    """Read the next message; `EOFError` or `OSError` if the other side has gone."""
    return pickle.loads(connection.recv_bytes())
