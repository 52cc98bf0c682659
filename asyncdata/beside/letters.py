"""Letters: what the two processes write to each other, each small enough to go through a pipe whole or not at all."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from asyncdata.columns import Columns
from asyncdata.options import Options
from asyncdata.processes.arena import Parcel
from asyncdata.runtime.tickets import Position

__all__ = (
    "Again",
    "Ask",
    "Begin",
    "Cargo",
    "Carry",
    "Chosen",
    "End",
    "Ended",
    "Forget",
    "Opened",
    "Order",
    "Over",
    "Ready",
    "Stop",
    "Taken",
    "Told",
    "Where",
    "receive",
    "send",
)


class Order(NamedTuple):
    """What a run is: how the plan is rewritten, in which epoch, and where it begins."""

    options: Options
    epoch: int
    start: Position


class Cargo(NamedTuple):
    """A block as it travels: its items, failures among them carried, or the columns that they lie in.

    `odd` tells whether some of the items are failures, or pickled apart; `held`, whether the pipeline keeps the block
    until it is told that it could be unpickled.
    """

    items: list[Any]
    columns: Sequence[Columns]
    odd: bool
    held: bool = False

    def apart(self) -> Cargo:
        """Return the same with each row in memory of its own."""
        return self._replace(items=Columns.apart(self.columns), columns=()) if self.columns else self


# from the consumer


class Begin(NamedTuple):
    """Start a run; the parcel is an `Order`."""

    run: int
    parcel: Parcel


class Taken(NamedTuple):
    """The consumer has taken so many items, in all, given out so many blocks, and may wait for more."""

    run: int
    items: int
    blocks: int
    hungry: bool


class Where(NamedTuple):
    """Where does a run go on after the first elements of a block?"""

    block: int
    delivered: int


class Again(NamedTuple):
    """What are the elements of a block, each pickled apart? As they were sent they cannot be unpickled."""

    block: int


class Opened(NamedTuple):
    """A block that was held could be unpickled."""

    run: int
    block: int


class Chosen(NamedTuple):
    """What has AUTOTUNE chosen?"""


class Ask(NamedTuple):
    """Answer a question about a run."""

    run: int
    question: Where | Again | Chosen
    token: int


class Stop(NamedTuple):
    """End a run; it may still be asked where it was."""

    run: int


class Forget(NamedTuple):
    """Nobody will ask about this run any more."""

    run: int


class End(NamedTuple):
    """End the process."""


# from the pipeline


class Ready(NamedTuple):
    """The plan has arrived; else the parcel says what is wrong with it."""

    refusal: Parcel | None


class Carry(NamedTuple):
    """The next block of a run, with its number, a `Cargo`, and how many items the buffer may hold."""

    run: int
    block: int
    parcel: Parcel
    depth: int


class Ended(NamedTuple):
    """Nothing more will come in a run, because of the error in the parcel; without one this is the end of the data."""

    run: int
    error: Parcel | None


class Over(NamedTuple):
    """All threads of a run have ended."""

    run: int


class Told(NamedTuple):
    """The answer to a question: a position, or a carried error; `None` about a run that could not begin."""

    token: int
    parcel: Parcel | None


def send(connection: Connection, letter: object) -> None:
    """Write a letter, in one piece: threads and finalizers need no lock for it."""
    connection.send_bytes(pickle.dumps(letter, 5))


def receive(connection: Connection) -> Any:
    """Read the next letter; `EOFError` or `OSError` if the other side has gone."""
    return pickle.loads(connection.recv_bytes())
