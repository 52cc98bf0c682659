"""The rows of a Lance dataset as a source: any by its number, or those that match a filter, in blocks of columns."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from asyncdata.elements.columns import ColumnBatch
from asyncdata.errors import DataLossError
from asyncdata.executors.function_call import noted
from asyncdata.executors.scope import Scope
from asyncdata.formats.column_parser import ROWS
from asyncdata.graph.node import ELSEWHERE, PHYSICAL, UnseekableError
from asyncdata.graph.stages import Produce
from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.tickets import (
    END,
    ExplicitTickets,
    Ordinals,
    Position,
    ReplayedTickets,
    Ticket,
    Tickets,
    natural,
)
from asyncdata.sources.lance_table import METHOD, ROW_BITS, LanceTable, Segment
from asyncdata.sources.random_access import IndexedSource, check_ordinals
from asyncdata.storage import Ahead, is_local, without_query

__all__ = ("LanceMatches", "LanceRows")

AHEAD: Final = 2
"""How many groups of rows are requested ahead from an object store."""

FEW: Final = 1024
"""At least this many rows are read at once, if they were requested: each costs less the more there are."""


@dataclass(frozen=True, eq=False)
class LanceRows(IndexedSource):
    """The rows of one version of a table. Tickets are their numbers."""

    uri: str = field(metadata=ELSEWHERE)
    table: LanceTable = field(repr=False, metadata=PHYSICAL)
    columns: Sequence[str] | None = None

    def label(self) -> str:
        return f"{METHOD}({without_query(self.uri)})"

    @property
    def rows_identity(self) -> str:
        """What identifies the rows that are read: not the path, as the folder may be moved."""
        return f"{os.path.basename(without_query(self.uri).rstrip('/'))}, {self.table.count} rows {self.table.digest}"

    @property
    def identity(self) -> str:
        return f"{METHOD}({self.rows_identity}{'' if self.columns is None else f', columns={self.columns}'})"

    @property
    def contents(self) -> tuple[Any, ...]:
        return (*super().contents, self.identity)

    def difference(self, words: str) -> str:
        """Say which version of the table a state was made with, if that is why it does not fit."""
        digest = words.partition(" rows ")[2].partition(",")[0].partition(")")[0]
        if not words.startswith(f"{METHOD}(") or digest == self.table.digest:
            return ""
        then = self.table.version_with(digest)
        if then is None:
            return f"version {self.table.version} has other rows, and no version with those of the state is there; "
        return f"version {self.table.version} has other rows; to continue, read the version of then: version={then}; "

    @property
    def reads_elsewhere(self) -> bool:
        return not is_local(self.uri)

    @property
    def cardinality(self) -> int:
        return self.table.count

    @property
    def signature(self) -> Any:
        return None

    def stage(self) -> Produce:
        return Produce(self.blocks)

    async def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        """Yield the rows in order."""
        start, size = 0 if position is None else self.parse_position(position, natural), self.table.count
        spans = (range(at, min(size, at + self.table.step)) for at in range(start, size, self.table.step))
        async with aclosing(self.parts(scope, want, spans)) as source:
            async for part in source:
                yield self.block(part, Ordinals(start, start := start + size_of(part)))

    async def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        done = 0
        check_ordinals(self, tickets)
        async with aclosing(self.parts(scope, want, self.groups(want, tickets))) as source:
            async for part in source:
                yield self.block(part, ReplayedTickets(tickets, done, done := done + size_of(part), END))

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
        return Block([noted(part, self.label(), tickets[0])], tickets, failed=True)


@dataclass(frozen=True, eq=False)
class LanceMatches(LanceRows):
    """The rows of one version of a table that match a filter. Tickets are their addresses: fragment and row in it.

    A position is the address at which reading goes on: the rows of that fragment are filtered again from there on.
    """

    filters: str = field(kw_only=True)

    @property
    def identity(self) -> str:
        return f"{super().identity[:-1]}, filters={self.filters!r})"

    @property
    def random_access(self) -> bool:
        return False

    @property
    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY

    def seek(self, count: int) -> Position:
        raise UnseekableError(self.label())

    def read_before(self, position: Position) -> int | None:
        return None

    async def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        """Yield the rows fragment by fragment; one that cannot be read to its end is an error there, and the next
        follows."""
        begins = [number << ROW_BITS for number in self.table.fragments]
        place = None if position is None else self.parse_position(position, partial(fragment_of, begins))
        for index in range(0 if place is None else place, len(begins)):
            address = begins[index] if place is None else natural(position)
            place, after = None, begins[index + 1] if index + 1 < len(begins) else END
            scan = self.table.matching(begins[index] >> ROW_BITS, address, self.filters)
            try:
                while (found := await scope.in_thread(partial(next, scan, None))) is not None:
                    for segment, addresses in in_demand(*found, want):
                        yield Block.of_columns([segment], matches(addresses, address))
                        address = addresses[-1] + 1
            except DataLossError as error:
                yield self.block(error, ExplicitTickets([address], [address, after].__getitem__))

    def read(self, rows: Sequence[int]) -> list[Segment]:
        return self.table.read_matches(rows, self.filters)


def fragment_of(begins: Sequence[int], position: Position) -> int:
    """Return the place of the fragment that an address is in; `ValueError` if there is none."""
    return begins.index(natural(position) >> ROW_BITS << ROW_BITS)


def in_demand(columns: ColumnBatch, addresses: list[int], want: Demand) -> Iterator[tuple[ColumnBatch, list[int]]]:
    """Yield rows and their addresses in parts of the demand."""
    start = 0
    while start < len(columns):
        stop = min(len(columns), start + min(want.items, ROWS))
        yield columns[start:stop], addresses[start:stop]
        start = stop


def matches(addresses: list[int], before: int) -> Tickets:
    """Return the tickets of rows at these addresses; `before` is the position before them."""
    return ExplicitTickets(addresses, lambda count: addresses[count - 1] + 1 if count else before)


def size_of(part: Segment) -> int:
    """Return how many elements these are."""
    return len(part) if isinstance(part, ColumnBatch) else 1


def divided(segment: Segment, want: Demand) -> Iterator[Segment]:
    """Yield rows in parts of the demand."""
    if not isinstance(segment, ColumnBatch):
        yield segment
        return
    start = 0
    while start < len(segment):
        part = segment[start : start + want.items]
        yield part
        start += len(part)
