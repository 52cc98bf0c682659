"""Parquet files as a source: their row groups are read and decoded one after another, and passed on as columns."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from asyncdata.elements.columns import ColumnBatch
from asyncdata.executors.scope import Scope
from asyncdata.formats.column_parser import ROWS, part_of
from asyncdata.formats.parquet_groups import (
    TAIL,
    DecodedGroup,
    PartsOfFile,
    Selection,
    as_data_loss,
    check_columns,
    checked_tail,
    metadata_in,
    places_of,
    reading_errors,
    spans,
)
from asyncdata.graph.node import ELSEWHERE, REPLACEABLE
from asyncdata.runtime.block import Demand
from asyncdata.sources.numbered_files import NumberedFile
from asyncdata.sources.parsed_files import ParsedChunk
from asyncdata.sources.table_contents import TableContents
from asyncdata.storage import Entry, store_for

__all__ = ("ParquetFile",)


@dataclass(frozen=True, eq=False)
class ParquetFile(NumberedFile):
    """The rows of one file, as dicts of columns' values. Positions contain numbers of row groups."""

    method: ClassVar[str] = "ParquetDataset"

    columns: Sequence[str] | None = field(default=None, kw_only=True)
    filters: Any = field(default=None, kw_only=True, repr=False, metadata=ELSEWHERE)
    condition: str | None = field(default=None, kw_only=True, repr=False, metadata=REPLACEABLE)
    """The filters as text, which is in the label."""

    @property
    def recognises(self) -> bool:
        return False  # pages are compressed, not the file

    @property
    def identity(self) -> str:
        """The label with columns and filters: columns change the elements, filters also their positions."""
        arguments = {"columns": self.columns, "filters": self.condition}
        words = [f", {name}={value}" for name, value in arguments.items() if value is not None]
        return f"{super().identity[:-1]}{''.join(words)})"

    def contents_of(self, scope: Scope, offset: int) -> Any:
        store, path = store_for(self.path, self.storage)
        return TableContents(scope, store, path)

    async def parts(
        self, contents: TableContents, entry: Entry, want: Demand, offset: int
    ) -> AsyncGenerator[ParsedChunk, None]:
        """Yield the rows of each row group; a row group that cannot be read is one error, and the next one follows.

        With random access there is one error for each row of it.
        """
        selection = Selection(self.columns, self.filters)
        try:
            tail = await self.tail(contents, entry)
            metadata = await contents.scope.in_thread(partial(metadata_in, tail, entry.size))
            needed = selection.needed(metadata, self.shown)
            await contents.scope.in_thread(partial(check_columns, metadata, entry.size, needed))
            groups = await contents.scope.in_thread(partial(selection.groups, metadata, tail, entry.size))
        except reading_errors() as error:
            yield ParsedChunk([as_data_loss(error, self.shown)], offset, lost=True)
            return
        groups = [group for group in groups if group >= offset]
        places = places_of(metadata, needed)
        contents.set_groups(groups, lambda group: spans(metadata, group, places, entry.size))
        for group in groups:
            try:
                parts = await contents.group(group)
                decode = partial(selection.decoded, metadata, group, PartsOfFile(entry.size, parts), needed)
                decoded = await contents.scope.in_thread(decode)
            except reading_errors() as error:
                count = 1 if self.files is None else metadata.row_group(group).num_rows
                for lost in in_places(as_data_loss(error, self.shown, group), count, want, group):
                    yield lost
                continue
            for found in in_parts(decoded, want, group, self.shown):
                yield found

    async def tail(self, contents: TableContents, entry: Entry) -> bytes:
        """Return the last bytes of the file, which contain the metadata."""
        size = min(TAIL, entry.size)
        tail = await contents.read(entry.size - size, size) if size else b""
        length = checked_tail(tail, entry.size)
        if length > size:
            tail = await contents.read(entry.size - length, length)
        return tail


def in_places(error: Exception, rows: int, want: Demand, group: int) -> Iterator[ParsedChunk]:
    """Yield an error in the place of each row of a row group; damaged metadata may say that it has billions."""
    begin, end = 0, -1
    while end < 0:
        stop = min(rows, begin + ROWS, begin + want.items)
        end = group + 1 if stop >= rows else -1
        yield ParsedChunk([copy.copy(error) for _ in range(begin, stop)], group, begin, end)
        begin = stop


def in_parts(decoded: DecodedGroup, want: Demand, group: int, name: str) -> Iterator[ParsedChunk]:
    """Yield the rows of a row group in chunks of the demand."""
    columns, rows, lost = decoded
    for begin in range(0, rows, ROWS):
        size = min(ROWS, rows - begin)
        some, start = ColumnBatch(part_of(columns, begin, begin + size), size), 0
        while start < size:
            stop = min(size, start + want.items)
            found = some[start:stop]
            if lost and not lost.keys().isdisjoint(range(begin + start, begin + stop)):
                found = [
                    decoded.error(row, name, group) if row in lost else item
                    for row, item in enumerate(found, begin + start)
                ]
            end = group + 1 if begin + stop == rows else -1
            yield ParsedChunk(found, group, begin + start, end)
            start = stop
