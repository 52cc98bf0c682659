"""Parquet files as a source: their row groups are read and decoded one after the other, and handed on as columns."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, cast

from asyncdata.elements.columns import ColumnBatch
from asyncdata.errors import DataLossError, PlanError
from asyncdata.executors.scope import Scope
from asyncdata.formats.arrow_columns import arrow, columns_of
from asyncdata.formats.column_parser import ROWS, part_of
from asyncdata.graph.node import ELSEWHERE
from asyncdata.runtime.block import Demand
from asyncdata.sources.parsed_files import ParsedChunk, ParsedFile
from asyncdata.storage import BLOCK_BYTES, Entry, store_for

__all__ = ("ParquetFile",)

TAIL: Final = 1 << 16
"""Bytes that are read from the end of a file, where most that tell of its row groups fit in."""

MAGIC: Final = b"PAR1"

LARGEST_BLOCK: Final = 8 << 20


class PartsOfFile(io.RawIOBase):
    """Some parts of a file, as a file that pyarrow reads."""

    def __init__(self, size: int, parts: Sequence[tuple[int, bytes]]) -> None:
        super().__init__()
        self._size = size
        self._parts = parts
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        stop = self._size if size < 0 else min(self._size, self._at + size)
        for start, data in self._parts:
            if start <= self._at and stop <= start + len(data):
                found = data[self._at - start : stop - start]
                self._at = stop
                return found
        raise DataLossError(f"bytes {self._at} to {stop} are asked for, which the file does not say it needs")


class TableContents:
    """The bytes of a file that is read in parts."""

    compressed = False

    def __init__(self, scope: Scope, node: ParsedFile) -> None:
        self.scope = scope
        self.store, self.path = store_for(node.path, node.storage)
        self.entry = Entry("")

    async def begin(self) -> Entry:
        """Return what is to be read."""
        self.entry = await self.scope.in_thread(partial(self.store.head, self.path))
        return self.entry

    async def read(self, start: int, length: int) -> bytes:
        """Return some bytes of what was there at the beginning; `DataLossError` if another file is there now."""
        found = bytearray()
        runner = self.scope if length > BLOCK_BYTES else None  # more is requested ahead only where that is needed
        async with aclosing(self.store.stream(self.path, max(1, min(length, LARGEST_BLOCK)), start, runner)) as stream:
            entry = await stream.begin()
            if entry[1:] != self.entry[1:]:
                raise DataLossError("the file was replaced by another one while it was read")
            while len(found) < length and len(block := await anext(stream, b"")):
                found += block
        if len(found) < length:
            raise DataLossError(f"it ends within bytes {start} to {start + length}")
        return bytes(memoryview(found)[:length])

    async def aclose(self) -> None:
        """Hold nothing open."""


@dataclass(frozen=True, eq=False)
class ParquetFile(ParsedFile):
    """The rows of one file, as dicts of columns' values. Positions tell row groups by their numbers."""

    method: ClassVar[str] = "ParquetDataset"

    columns: Sequence[str] | None = field(default=None, kw_only=True)
    filters: Any = field(default=None, kw_only=True, repr=False, metadata=ELSEWHERE)

    @property
    def recognises(self) -> bool:
        return False  # its pages are compressed, and not the file

    @property
    def signature(self) -> Any:
        return None

    @property
    def identity(self) -> str:
        """With other columns elements are others, and with other filters their places too."""
        arguments = {"columns": self.columns, "filters": self.filters}
        words = [f", {name}={value}" for name, value in arguments.items() if value is not None]
        return f"{super().identity[:-1]}{''.join(words)})"

    @property
    def contents(self) -> tuple[Any, ...]:
        return (*super().contents, str(self.filters))

    def contents_of(self, scope: Scope, offset: int) -> Any:
        return TableContents(scope, self)

    async def parts(
        self, contents: TableContents, entry: Entry, want: Demand, offset: int
    ) -> AsyncGenerator[ParsedChunk, None]:
        """Yield the rows of each row group; one that cannot be read is one error, and the next follows."""
        try:
            metadata = await self.metadata(contents, entry)
            needed = self.needed(metadata)
        except (OSError, ValueError) as error:
            yield ParsedChunk([self.told_as(error)], offset, lost=True)
            return
        for group in range(offset, metadata.num_row_groups):
            try:
                parts = [(start, await contents.read(start, size)) for start, size in spans(metadata, group, needed)]
                decode = partial(self.decoded, metadata, group, PartsOfFile(entry.size, parts), needed)
                columns, rows = await contents.scope.in_thread(decode)
            except (OSError, ValueError) as error:
                yield ParsedChunk([self.told_as(error, group)], group, end=group + 1)
                continue
            for found in in_parts(columns, rows, want, group):
                yield found

    async def metadata(self, contents: TableContents, entry: Entry) -> Any:
        """Return what the end of the file tells of it."""
        size = min(TAIL, entry.size)
        tail = await contents.read(entry.size - size, size) if size else b""
        if len(tail) < 12 or tail[-4:] != MAGIC:
            raise ValueError(f"at byte {max(0, entry.size - 4)} {MAGIC!r} was expected, which a Parquet file ends with")
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if length > entry.size - len(MAGIC):
            raise ValueError(f"at byte {entry.size - 8} it says that {length - 8} bytes tell of it, more than it has")
        if length > size:
            tail = await contents.read(entry.size - length, length)
        source = PartsOfFile(entry.size, [(entry.size - len(tail), tail)])
        pq = arrow("pyarrow.parquet", self.method)
        return await contents.scope.in_thread(partial(pq.read_metadata, source))

    def needed(self, metadata: Any) -> list[str] | None:
        """Return the columns to read: those that are wanted, and those that filters look at; `PlanError` for others."""
        names = metadata.schema.to_arrow_schema().names
        looked_at = looked_at_by(self.filters)
        needed = [*(self.columns or ()), *(looked_at or ())]
        if missing := [name for name in needed if name not in names]:
            raise PlanError(f"{self.shown}: there is no column {missing[0]!r}, but {names}")
        return None if self.columns is None or looked_at is None else needed

    def decoded(
        self, metadata: Any, group: int, source: PartsOfFile, needed: list[str] | None
    ) -> tuple[dict[str, Any], int]:
        """Return the columns of a row group, and how many rows they have; in any thread."""
        pq = arrow("pyarrow.parquet", self.method)
        file = pq.ParquetFile(source, metadata=metadata, pre_buffer=False, page_checksum_verification=True)
        table = file.read_row_group(group, columns=needed, use_threads=False)
        if self.filters is not None:
            filters: Any = self.filters
            table = table.filter(pq.filters_to_expression(filters) if isinstance(filters, list) else filters)
        if self.columns is not None:
            table = table.select(self.columns)
        return columns_of(table), table.num_rows

    def told_as(self, error: Exception, group: int = -1) -> Exception:
        """Return an error of pyarrow as one that names the file and the row group; others as they are."""
        if isinstance(error, (PlanError, FileNotFoundError, PermissionError, ConnectionError, TimeoutError)):
            return error
        where = f"row group {group} cannot be read" if group >= 0 else "it is no Parquet file"
        return DataLossError(f"{self.shown}: {where}: {error}")


def looked_at_by(filters: Any) -> list[str] | None:
    """Return the columns that filters look at; `None` for an expression, which does not tell."""
    if filters is None:
        return []
    if not isinstance(filters, list):
        return None
    groups = cast("list[Any]", filters)
    found: list[str] = []
    for some in groups:
        terms = cast("list[Any]", some if isinstance(some, list) else [some])
        found += [str(term[0]) for term in terms]
    return found


def spans(metadata: Any, group: int, needed: Sequence[str] | None) -> list[tuple[int, int]]:
    """Return where the bytes of a row group lie that are needed, as few parts as there are gaps between them."""
    found: list[tuple[int, int]] = []
    row_group = metadata.row_group(group)
    for place in range(row_group.num_columns):
        chunk = row_group.column(place)
        if needed is not None and chunk.path_in_schema.partition(".")[0] not in needed:
            continue
        start = chunk.data_page_offset
        if chunk.dictionary_page_offset is not None and 0 < chunk.dictionary_page_offset < start:
            start = chunk.dictionary_page_offset
        size = chunk.total_compressed_size
        if found and found[-1][0] + found[-1][1] == start:
            found[-1] = found[-1][0], found[-1][1] + size
        else:
            found.append((start, size))
    return found


def in_parts(columns: dict[str, Any], rows: int, want: Demand, group: int) -> Iterator[ParsedChunk]:
    """Yield the rows of a row group, as many as are wanted."""
    for begin in range(0, rows, ROWS):
        size = min(ROWS, rows - begin)
        some, start = ColumnBatch(part_of(columns, begin, begin + size), size), 0
        while start < size:
            stop = min(size, start + want.items)
            end = group + 1 if begin + stop == rows else -1
            yield ParsedChunk(some[start:stop], group, begin + start, end)
            start = stop
