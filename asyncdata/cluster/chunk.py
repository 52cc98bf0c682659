"""Chunk: consecutive elements of a pipeline that runs on a worker, with their tickets and where to resume."""

from __future__ import annotations

import pickle
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, final

from asyncdata.elements.columns import ColumnBatch
from asyncdata.executors.function_call import noted
from asyncdata.executors.process.shm_arena import dumps
from asyncdata.executors.process.task import IsolatedElement, RemoteError
from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.tickets import Position, Ticket, Tickets, decode_run, encode_runs

__all__ = ("Chunk", "ChunkTickets", "Place", "chunk_of", "isolated")

FEW: Final = 16
"""With at most so many elements, such as batches, each has its position: a resume between them reads nothing again."""


class Place(NamedTuple):
    """The position at which a pipeline resumes after so many elements of a chunk."""

    after: int
    position: Position


class Chunk(NamedTuple):
    """Elements in the form that is sent: items, or their columns; and if the chunk is the last, why the run ended."""

    items: list[Any] | tuple[ColumnBatch, ...]
    tickets: list[Any]
    """As JSON; see `encode_runs`."""
    places: list[Place]
    """Where to resume: at the end, and after each failure of a source, which cannot be skipped."""
    source_failures: list[int]
    bundled: bool = False
    """Whether separate elements were put into columns only to be sent."""
    ended: bool = False
    error: RemoteError | None = None

    @property
    def size(self) -> int:
        """How many elements there are."""
        return sum(map(len, self.items)) if isinstance(self.items, tuple) else len(self.items)

    def block(self, before: Place, label: str) -> Block:
        """Return the elements as a block. `before` says how many came since the last known place.

        `label` names the step in the error of an element that cannot be unpickled.
        """
        tickets = ChunkTickets([*chain.from_iterable(map(decode_run, self.tickets))], before, self.places)
        if isinstance(self.items, tuple):
            if self.bundled:
                return Block(ColumnBatch.apart(self.items), tickets)
            return Block.of_columns(self.items, tickets)
        sources = set(self.source_failures)
        items = [opened(item, tickets[place], label, place in sources) for place, item in enumerate(self.items)]
        return Block(items, tickets, Failure in set(map(type, items)))


def opened(item: Any, ticket: Ticket, label: str, of_source: bool) -> Any:
    """Return an item as it is in this process."""
    if type(item) is IsolatedElement:
        try:
            return pickle.loads(item.pickled)
        except Exception as error:  # noqa: BLE001 - of the element's class
            return noted(error, label, ticket)
    if type(item) is not RemoteError:
        return item
    failure = item.failure(ticket)
    failure.of_source = of_source
    return failure


@final
class ChunkTickets(Tickets):
    """The tickets of a chunk. Between two places it resumes at the first, and skips the elements since then."""

    __slots__ = ("before", "places", "tickets")

    def __init__(self, tickets: Sequence[Ticket], before: Place, places: Sequence[Place]) -> None:
        self.tickets = tickets
        self.before = before
        self.places = places

    def __len__(self) -> int:
        return len(self.tickets)

    def __getitem__(self, index: int) -> Ticket:
        return self.tickets[index]

    def __iter__(self) -> Any:
        return iter(self.tickets)

    def at(self, count: int) -> Position:
        number = bisect_right(self.places, count, key=lambda place: place.after)
        begin, position = self.places[number - 1] if number else (-self.before.after, self.before.position)
        return {"skip": count - begin, "from": position} if count > begin else position


def chunk_of(block: Block, end: bool) -> Chunk:
    """Return a block in the form that is sent; the position at its `end` only if it is requested."""
    size, sources = len(block), block.source_failures(len(block))
    after = [place + 1 for place in sources if place + 1 < size or not end]
    if end:
        after = [*range(1, size + 1)] if size <= FEW else [*after, size]
    places = [Place(count, block.tickets.at(count)) for count in after]
    tickets = encode_runs(block.tickets)
    if block.columns and all(part.complete for part in block.columns):
        return Chunk(tuple(block.columns), tickets, places, sources)
    if not block.failed and (columns := ColumnBatch.bundle(block.items)) is not None:
        return Chunk((columns,), tickets, places, sources, bundled=True)
    items = [RemoteError.of(item.error) if type(item) is Failure else item for item in block.items]
    return Chunk(items, tickets, places, sources)


def isolated(chunk: Chunk, fail: Callable[[TypeError], RemoteError], apart: bool) -> Chunk:
    """Return a chunk in which elements that cannot be pickled are failures; each element pickled by itself if
    requested."""
    items = chunk.items
    if isinstance(items, tuple):
        items = [*chain.from_iterable(part.elements() for part in items)]
    return chunk._replace(items=[one if type(one) is RemoteError else fitting(one, fail, apart) for one in items])


def fitting(item: Any, fail: Callable[[TypeError], RemoteError], apart: bool) -> Any:
    """Return an item that can be sent, or the failure in its place."""
    try:
        pickled = dumps(item, None)
    except Exception as error:  # noqa: BLE001 - of the element's class
        kind = type(item).__name__
        return fail(TypeError(f"the element is a {kind}, which cannot be sent from a worker: {error}"))
    return IsolatedElement(pickled) if apart else item
