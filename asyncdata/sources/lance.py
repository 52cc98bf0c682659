"""The rows of a version of a Lance dataset as a source: all of them, or those that match a filter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from asyncdata.elements.columns import ColumnBatch
from asyncdata.errors import DataLossError
from asyncdata.executors.scope import Scope
from asyncdata.formats.column_parser import ROWS
from asyncdata.graph.node import UnseekableError
from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.tickets import END, ExplicitTickets, Position, Tickets, natural
from asyncdata.sources.lance_table import METHOD, ROW_BITS, LanceTable
from asyncdata.sources.table_rows import Segment, TableRows

__all__ = ("LanceMatches", "LanceRows")


@dataclass(frozen=True, eq=False)
class LanceRows(TableRows):
    """The rows of one version of a table."""

    @property
    def version(self) -> LanceTable:
        """What reads the version."""
        return cast("LanceTable", self.table)

    def difference(self, words: str) -> str:
        """Say which version of the table a state was made with, if that is why it does not fit."""
        digest = words.partition(" rows ")[2].partition(",")[0].partition(")")[0]
        if not words.startswith(f"{METHOD}(") or digest == self.version.digest:
            return ""
        then = self.version.version_with(digest)
        if then is None:
            return f"version {self.version.version} has other rows, and no version with those of the state is there; "
        return (
            f"version {self.version.version} has other rows; to continue, read the version of the state: "
            f"version={then}; "
        )


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
    def resume_note(self) -> str:
        return f"{self.label()} filters the fragment where it stopped again"

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
        begins = [number << ROW_BITS for number in self.version.fragments]
        place = None if position is None else self.parse_position(position, partial(fragment_of, begins))
        for index in range(0 if place is None else place, len(begins)):
            address = begins[index] if place is None else natural(position)
            place, after = None, begins[index + 1] if index + 1 < len(begins) else END
            scan = self.version.matching(begins[index] >> ROW_BITS, address, self.filters)
            try:
                while (found := await scope.in_thread(partial(next, scan, None))) is not None:
                    for segment, addresses in in_demand(*found, want):
                        yield Block.of_columns([segment], matches(addresses, address))
                        address = addresses[-1] + 1
            except DataLossError as error:
                yield self.block(error, ExplicitTickets([address], [address, after].__getitem__))

    def read(self, rows: Sequence[int]) -> list[Segment]:
        return self.version.read_matches(rows, self.filters)


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
