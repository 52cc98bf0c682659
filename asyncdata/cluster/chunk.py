"""Chunk: consecutive elements of a pipeline that runs on a worker, with their tickets and where to resume."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

from asyncdata.elements.columns import ColumnBatch
from asyncdata.executors.process.shm_arena import dumps
from asyncdata.executors.process.task import IsolatedElement, RemoteError, fit, unpack_item
from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.tickets import ExplicitTickets, Position, Tickets, decode_run, encode_runs

__all__ = ("Chunk", "ChunkPosition", "chunk_of", "isolated")

FEW: Final = 16
"""With at most so many elements, such as batches, each has its position: a resume between them reads nothing again."""


class ChunkPosition(NamedTuple):
    """The position at which a pipeline resumes after so many elements of a chunk."""

    after: int
    position: Position


class Chunk(NamedTuple):
    """Elements in the form that is sent: items, or their columns; and if the chunk is the last, why the run ended."""

    items: list[Any] | tuple[ColumnBatch, ...]
    tickets: list[Any]
    """As JSON; see `encode_runs`."""
    places: list[ChunkPosition]
    """Where to resume: at the end, and after each failure of a source, which cannot be skipped."""
    source_failures: list[int]
    bundled: bool = False
    """Whether separate elements were put into columns only to be sent."""
    ended: bool = False
    error: RemoteError | None = None

    @property
    def size(self) -> int:
        return sum(map(len, self.items)) if isinstance(self.items, tuple) else len(self.items)

    def block(self, before: ChunkPosition, label: str) -> Block:
        """Return the elements as a block. `before` says how many came since the last known place.

        `label` names the step in the error of an element that cannot be unpickled.
        """
        tickets = ExplicitTickets(
            [*chain.from_iterable(map(decode_run, self.tickets))], partial(position_at, before, self.places)
        )
        if isinstance(self.items, tuple):
            if self.bundled:
                return Block(ColumnBatch.apart(self.items), tickets)
            return Block.of_columns(self.items, tickets)
        sources = set(self.source_failures)
        items = [received(item, tickets, place, label, place in sources) for place, item in enumerate(self.items)]
        return Block(items, tickets, Failure in set(map(type, items)))


def received(item: Any, tickets: Tickets, place: int, label: str, of_source: bool) -> Any:
    """Return an item as it is in this process."""
    found = unpack_item(item, tickets, place, label)
    if type(item) is RemoteError:
        found.of_source = of_source
    return found


def position_at(before: ChunkPosition, places: Sequence[ChunkPosition], count: int) -> Position:
    """Return the position after `count` elements: between two places the first one, and the elements to skip."""
    number = bisect_right(places, count, key=lambda place: place.after)
    begin, position = places[number - 1] if number else (-before.after, before.position)
    return {"skip": count - begin, "from": position} if count > begin else position


def chunk_of(block: Block, end: bool) -> Chunk:
    """Return a block in the form that is sent; the position at its `end` only if it is requested."""
    size, sources = len(block), block.source_failures(len(block))
    after = [place + 1 for place in sources if place + 1 < size or not end]
    if end:
        after = [*range(1, size + 1)] if size <= FEW else [*after, size]
    places = [ChunkPosition(count, block.tickets.at(count)) for count in after]
    tickets = encode_runs(block.tickets)
    if block.columns and all(part.complete for part in block.columns):
        return Chunk(tuple(block.columns), tickets, places, sources)
    if not block.failed and (columns := ColumnBatch.bundle(block.items)) is not None:
        return Chunk((columns,), tickets, places, sources, bundled=True)
    return Chunk([*map(fit, block.items)], tickets, places, sources)


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
