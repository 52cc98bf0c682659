"""TableRows: the rows of a table as a source, any by its number, read in groups in a thread."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncdata.elements.columns import ColumnBatch
from asyncdata.executors.function_call import noted
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import ELSEWHERE, PHYSICAL
from asyncdata.graph.stages import Produce
from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.tickets import END, Ordinals, Position, ReplayedTickets, Ticket, Tickets, natural
from asyncdata.sources.random_access import IndexedSource, check_ordinals
from asyncdata.storage import Ahead, is_local, without_query

__all__ = ("Segment", "Table", "TableRows", "distinct")

AHEAD: Final = 2
"""How many groups of rows are requested ahead from an object store."""

FEW: Final = 1024
"""At least this many rows are read at once, if they were requested: each costs less the more there are."""

Segment: TypeAlias = ColumnBatch | list[Any] | Exception
"""Consecutive rows, as columns or as elements, or the error in the place of one."""


class Table(Protocol):
    """What reads rows by their numbers."""

    @property
    def method(self) -> str:
        """The name of the class that users see."""
        ...

    @property
    def count(self) -> int:
        """How many rows there are."""
        ...

    @property
    def step(self) -> int:
        """How many rows are read together."""
        ...

    @property
    def identity(self) -> str:
        """What identifies the rows, but for the name of the table."""
        ...

    def read(self, rows: Sequence[int]) -> list[Segment]:
        """Return the rows with these numbers, in this order, errors in the places of those that cannot be read.

        Thread-safe.
        """
        ...


@dataclass(frozen=True, eq=False)
class TableRows(IndexedSource):
    """The rows of a table. Tickets are their numbers."""

    uri: str = field(metadata=ELSEWHERE)
    table: Table = field(repr=False, metadata=PHYSICAL)
    columns: Sequence[str] | None = None

    def label(self) -> str:
        return f"{self.table.method}({without_query(self.uri)})"

    @property
    def identity(self) -> str:
        """The label with the base name, as the folder may be moved, and with what identifies the rows."""
        name = os.path.basename(without_query(self.uri).rstrip("/"))
        columns = "" if self.columns is None else f", columns={self.columns}"
        return f"{self.table.method}({name}, {self.table.identity}{columns})"

    @property
    def contents(self) -> tuple[Any, ...]:
        return (*super().contents, self.identity)

    @property
    def reads_elsewhere(self) -> bool:
        return not is_local(self.uri)

    @property
    def cardinality(self) -> int:
        return self.table.count

    def stage(self) -> Produce:
        return Produce(self.blocks)

    async def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        """Yield the rows in order."""
        start = 0 if position is None else self.parse_position(position, natural)
        async with aclosing(self.parts(scope, want, self.spans(start))) as source:
            async for part in source:
                yield self.block(part, Ordinals(start, start := start + size_of(part)))

    async def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        done = 0
        check_ordinals(self, tickets)
        async with aclosing(self.parts(scope, want, self.groups(want, tickets))) as source:
            async for part in source:
                yield self.block(part, ReplayedTickets(tickets, done, done := done + size_of(part), END))

    def spans(self, start: int) -> Iterator[Sequence[int]]:
        """Yield the numbers of rows that are read together in order, up to a multiple of the step."""
        size = self.table.count
        while start < size:
            step = self.table.step  # which may grow
            stop = min(size, (start // step + 1) * step)
            yield range(start, stop)
            start = stop

    def groups(self, want: Demand, tickets: Sequence[Ticket]) -> Iterator[Sequence[int]]:
        """Yield the numbers of rows that are read together."""
        start = 0
        while start < len(tickets):
            stop = start + min(self.table.step, max(want.items, FEW))
            yield tickets[start:stop]
            start = stop

    async def parts(self, scope: Scope, want: Demand, spans: Iterable[Sequence[int]]) -> AsyncGenerator[Segment, None]:
        """Yield the rows with these numbers in parts of the demand; from an object store some are requested ahead."""
        rest, ahead = iter(spans), deque[Ahead[list[Segment]]]()
        most = AHEAD if self.reads_elsewhere else 0
        try:
            while True:
                while len(ahead) <= most and (span := next(rest, None)) is not None:
                    read = partial(scope.in_thread, partial(self.read, span))
                    ahead.append(Ahead(read, scope))
                if not ahead:
                    return
                for segment in await ahead.popleft().ready:
                    for part in divided(segment, want):
                        yield part
        finally:
            for pending in ahead:
                pending.cancel.cancel()

    def read(self, rows: Sequence[int]) -> list[Segment]:
        """Return rows by their tickets, errors in the places of those that cannot be read."""
        return self.table.read(rows)

    def block(self, part: Segment, tickets: Tickets) -> Block:
        """Return rows, or the error in the place of one, as a block."""
        if isinstance(part, ColumnBatch):
            return Block.of_columns([part], tickets)
        if isinstance(part, list):
            return Block(part, tickets)
        return Block([noted(part, self.label(), tickets[0])], tickets, failed=True)


def distinct(rows: Sequence[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.intp] | None]:
    """Return the numbers of rows sorted, each once, and the place of each row among them; `None` if they are sorted."""
    if isinstance(rows, range) and rows.step == 1:
        return np.arange(rows.start, rows.stop), None
    numbers, places = np.unique(np.asarray(rows, np.int64), return_inverse=True)
    are_sorted = len(rows) == len(numbers) and bool((places == np.arange(len(rows))).all())
    return numbers, None if are_sorted else places


def size_of(part: Segment) -> int:
    return 1 if isinstance(part, Exception) else len(part)


def divided(segment: Segment, want: Demand) -> Iterator[Segment]:
    """Yield rows in parts of the demand."""
    if isinstance(segment, Exception):
        yield segment
        return
    start = 0
    while start < len(segment):
        part = segment[start : start + want.items]
        yield part
        start += len(part)
