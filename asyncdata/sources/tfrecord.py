"""TFRecord files as a source."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, final

from asyncdata.errors import DataLossError, ResumeError
from asyncdata.formats.tfrecord import FRAMING, RecordParser, decompressor, read_large
from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.plan import Node, picked
from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.executors import noted
from asyncdata.runtime.scope import Scope
from asyncdata.runtime.stage import Produce
from asyncdata.runtime.tickets import Position, Ticket, Tickets
from asyncdata.sources.record_index import Indexes, gathered
from asyncdata.storage import BLOCK_BYTES, Buffer, FileStream, Stream, size_of, store_for
from asyncdata.structure import TensorSpec

__all__ = ("RecordFile",)


@dataclass(frozen=True, eq=False)
class RecordFile(Node):
    """The records of one file, as bytes. What is corrupt or missing fails in its place."""

    path: str
    compression: str | None = None
    block_bytes: int = BLOCK_BYTES
    indexes: Indexes | None = None

    def stage(self) -> Produce:
        return Produce(self.blocks)

    @property
    def signature(self) -> TensorSpec:
        return TensorSpec((), object)

    def label(self) -> str:
        return f"TFRecordDataset({self.path})"

    @property
    def identity(self) -> str:
        """The label with the base name: files may be moved to another folder."""
        return f"TFRecordDataset({os.path.basename(self.path)})"

    @property
    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY if self.indexes is None else self.indexes.of(self.path).count

    @property
    def addressable(self) -> bool:
        return self.indexes is not None

    def address(self, places: Sequence[int]) -> Sequence[Ticket]:
        return places

    def seek(self, count: int) -> Position:
        return super().seek(count) if self.indexes is None else self.indexes.position(self.path, count)

    @property
    def resumption(self) -> str | None:
        return f"{self.label()} is decompressed from its beginning" if self.compression else None

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        if self.indexes is None:
            return picked(self, scope, want, tickets)
        return gathered(self.indexes, [(self.path, record) for record in tickets], scope, want, tickets)

    async def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        """Yield as many records as are wanted and have been read."""
        file = File(os.path.basename(self.path), size_of(self.path))
        place = RecordPlace() if position is None else self.told(position, lambda told: RecordPlace(*told))
        if position:
            place.check(self, file)
        ordinal, skip = place.record, place.skip
        async with aclosing(self.records(scope, want, place.offset)) as found:
            async for records, begin, end in found:
                block = self.block(file, records, ordinal, begin, end)
                ordinal += len(records)
                if skip < len(records):
                    yield block.part(skip, len(records)) if skip else block
                skip = max(0, skip - len(records))

    def block(self, file: File, records: list[Any], ordinal: int, begin: int, end: int) -> Block:
        """Return the records in bytes `begin` to `end` of the file as a block, errors among them as failures."""
        failed = set(map(type, records)) != {bytes}
        if failed:
            for place, record in enumerate(records):
                if type(record) is not bytes:
                    records[place] = noted(record, self.label(), ordinal + place)
        if self.compression:
            begin = -1
        tickets = RecordTickets(file, ordinal, len(records), begin, -1 if failed else end)
        return Block(records, tickets, failed)

    async def records(
        self, scope: Scope, want: Demand, offset: int
    ) -> AsyncGenerator[tuple[list[Any], int, int], None]:
        """Yield records with the bytes they lie in, and in its place the error that ends the file early."""
        parser = RecordParser(self.path, compressed=bool(self.compression))
        parser.jump(offset)
        store, path = store_for(self.path)
        try:
            stream = store.stream(path, self.block_bytes, offset, in_thread=scope.in_thread)
            async with aclosing(stream):
                chunks = self.expanded(stream, scope) if self.compression else stream
                async for chunk in chunks:
                    parser.feed(chunk)
                    for found in parsed(parser, want):
                        yield found
                    for found in large_records(chunks, parser, want):
                        yield found
        except (OSError, DataLossError) as error:
            yield [error], parser.offset, parser.offset
            return
        parser.finish()
        for found in parsed(parser, want):
            yield found

    async def expanded(self, stream: Stream, scope: Scope) -> AsyncGenerator[Buffer, None]:
        """Yield the stream's bytes decompressed, in a thread."""
        expand = decompressor(self.compression, self.path)
        async for data in stream:
            yield await scope.in_thread(partial(expand.feed, data))
        expand.finish()


def parsed(parser: RecordParser, want: Demand) -> Iterator[tuple[list[Any], int, int]]:
    """Yield the records that the parser has now, and where they begin and end."""
    begin = parser.offset
    while records := parser.parse(want.items):
        yield records, begin, parser.offset
        begin = parser.offset


def large_records(chunks: object, parser: RecordParser, want: Demand) -> Iterator[tuple[list[Any], int, int]]:
    """Yield large records that lie in the page cache, from the one on that the parser has a part of."""
    if not isinstance(chunks, FileStream) or (start := parser.cut) is None:
        return
    while records := read_large(chunks, start, want.items, BLOCK_BYTES):
        begin, start = start, start + sum(map(len, records)) + FRAMING * len(records)
        parser.jump(start)
        chunks.seek(start)
        yield records, begin, start


class File(NamedTuple):
    """What a position tells of a file: its base name, which is short and may lie in any folder, and its size."""

    name: str = ""
    size: int = -1


class RecordPlace(NamedTuple):
    """A position in a record file: `skip` records after the one at `offset`, which is number `record` of the file."""

    name: str = ""
    size: int = -1
    record: int = 0
    offset: int = 0
    skip: int = 0

    def check(self, node: RecordFile, file: File) -> None:
        """Raise unless the file is the one that the state was made with."""
        if self.name != file.name:
            raise ResumeError(f"{node.label()}: the state was in {self.name!r} there; the list of files has changed")
        if self.size != file.size:
            raise ResumeError(
                f"{node.label()}: the file had {self.size} bytes when the state was made, now {file.size}"
            )


@final
class RecordTickets(Tickets):
    """Records that follow each other in a file, between two byte offsets, which are -1 where they are not known."""

    __slots__ = ("begin", "count", "end", "file", "record")

    def __init__(self, file: File, record: int, count: int, begin: int, end: int) -> None:
        self.file = file
        self.record = record
        self.count = count
        self.begin = begin
        self.end = end

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return self.record + index

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.record, self.record + self.count))

    def run_from(self, ordinal: int) -> bool:
        return self.record == ordinal

    def at(self, count: int) -> Position:
        if self.begin < 0:  # compressed: it can only be read from its beginning
            return [*self.file, 0, 0, self.record + count]
        if count == self.count and self.end >= 0:
            return [*self.file, self.record + count, self.end, 0]
        return [*self.file, self.record, self.begin, count]
