"""Arrow's IPC files and streams as a source of rows, read a record batch at a time."""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from asyncdata.errors import DataLossError
from asyncdata.formats.arrow_rows import END_BYTES, ArrowParser, LateDictionariesError, dictionary_blocks, footer_length
from asyncdata.formats.record_limits import MAX_RECORD_BYTES, record_too_long
from asyncdata.graph.node import PHYSICAL
from asyncdata.runtime.block import Demand
from asyncdata.sources.parsed_files import ParsedChunk, ParsedFile
from asyncdata.sources.table_contents import TableContents
from asyncdata.storage import Entry, read_head, store_for

__all__ = ("ArrowFile",)

HEAD: Final = 1 << 16
"""Bytes read from the beginning of a file that is resumed in its middle: nearly all schemas are shorter."""


def last_error(found: ParsedChunk) -> Any:
    """Return the error that ends a file, if there is one."""
    return found.elements[-1] if found.lost and isinstance(found.elements, list) else None


@dataclass(frozen=True, eq=False)
class ArrowFile(ParsedFile):
    """The rows of one file, as dicts of columns' values."""

    method: ClassVar[str] = "ArrowDataset"

    columns: Sequence[str] | None = field(default=None, kw_only=True)
    max_record_bytes: int = field(default=MAX_RECORD_BYTES, kw_only=True, metadata=PHYSICAL)

    @property
    def identity(self) -> str:
        """The label with the columns, as they change the elements."""
        return super().identity if self.columns is None else f"{super().identity[:-1]}, columns={self.columns})"

    def parser(self, compressed: bool) -> ArrowParser:
        return ArrowParser(self.shown, self.columns, self.max_record_bytes)

    async def begin_at(self, parser: ArrowParser, offset: int) -> None:
        size = HEAD
        while offset and parser.start(head := await read_head(self.path, size, self.storage)) and len(head) == size:
            size *= 16
        parser.jump(offset)

    async def parts(self, contents: Any, entry: Entry, want: Demand, offset: int) -> AsyncGenerator[ParsedChunk, None]:
        """Yield the rows of each batch; from the beginning again if dictionaries must be read first."""
        async with aclosing(super().parts(contents, entry, want, offset)) as source:
            async for found in source:
                if not contents.compressed and isinstance(last_error(found), LateDictionariesError):
                    break
                yield found
            else:
                return
        try:
            dictionaries = await self.dictionaries(TableContents(contents.scope, *store_for(self.path, self.storage)))
        except (OSError, DataLossError) as error:
            yield ParsedChunk([error], 0, lost=True)
            return
        parser = ArrowParser(self.shown, self.columns, self.max_record_bytes, dictionaries)
        async with aclosing(self.contents_of(contents.scope, 0)) as again:
            await again.begin()
            async with aclosing(self.parse_all(parser, again, want)) as source:
                async for found in source:
                    yield found

    async def dictionaries(self, table: TableContents) -> list[bytes]:
        """Return the messages of all dictionaries of a file, which its footer lists."""
        async with aclosing(table):
            size = (await table.begin()).size
            try:
                length = footer_length(await table.read(max(0, size - END_BYTES), min(size, END_BYTES)))
                blocks = dictionary_blocks(await table.read(max(0, size - END_BYTES - length), length))
            except (struct.error, ValueError) as error:
                raise DataLossError(f"{self.shown}: its footer cannot be read: {error}") from None
            if sum(block for _, block in blocks) > self.max_record_bytes:
                raise record_too_long(self.shown, "its dictionaries", self.max_record_bytes)
            return [await table.read(start, block) for start, block in blocks]
