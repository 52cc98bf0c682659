"""TFRecord files as a source."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

from asyncdata.errors import DataLossError
from asyncdata.formats.tfrecord import FRAMING, RecordParser, decompressor, read_large
from asyncdata.plan import Node
from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.executors import noted
from asyncdata.runtime.scope import Scope
from asyncdata.runtime.stage import Produce
from asyncdata.storage import BLOCK_BYTES, Buffer, FileStream, Stream, store_for
from asyncdata.structure import TensorSpec

__all__ = ("RecordFile",)


@dataclass(frozen=True, eq=False)
class RecordFile(Node):
    """The records of one file, as bytes. What is corrupt or missing fails in its place."""

    path: str
    compression: str | None = None
    block_bytes: int = BLOCK_BYTES

    def stage(self) -> Produce:
        return Produce(self.blocks)

    @property
    def signature(self) -> TensorSpec:
        return TensorSpec((), object)

    def label(self) -> str:
        return f"TFRecordDataset({self.path})"

    async def blocks(self, scope: Scope, want: Demand) -> Blocks:
        """Yield as many records as are wanted and have been read."""
        start = 0
        async with aclosing(self.records(scope, want)) as found:
            async for records in found:
                tickets = range(start, start + len(records))
                start = tickets.stop
                yield self.block(records, tickets)

    def block(self, records: list[Any], tickets: range) -> Block:
        """Return records as a block, errors among them as failures."""
        failed = set(map(type, records)) != {bytes}
        if failed:
            for place, record in enumerate(records):
                if type(record) is not bytes:
                    records[place] = noted(record, self.label(), tickets[place])
        return Block(records, tickets, failed)

    async def records(self, scope: Scope, want: Demand) -> AsyncGenerator[list[Any], None]:
        """Yield records, and in its place the error that ends the file early."""
        parser = RecordParser(self.path, compressed=bool(self.compression))
        store, path = store_for(self.path)
        try:
            async with aclosing(store.stream(path, self.block_bytes, in_thread=scope.in_thread)) as stream:
                chunks = self.expanded(stream, scope) if self.compression else stream
                async for chunk in chunks:
                    parser.feed(chunk)
                    while records := parser.parse(want.items):
                        yield records
                    for records in large_records(chunks, parser, want):
                        yield records
        except (OSError, DataLossError) as error:
            yield [error]
            return
        parser.finish()
        while records := parser.parse(want.items):
            yield records

    async def expanded(self, stream: Stream, scope: Scope) -> AsyncGenerator[Buffer, None]:
        """Yield the stream's bytes decompressed, in a thread."""
        expand = decompressor(self.compression, self.path)
        async for data in stream:
            yield await scope.in_thread(partial(expand.feed, data))
        expand.finish()


def large_records(chunks: object, parser: RecordParser, want: Demand) -> Iterator[list[Any]]:
    """Yield large records that lie in the page cache, from the one on that the parser has a part of."""
    if not isinstance(chunks, FileStream) or (start := parser.cut) is None:
        return
    while records := read_large(chunks, start, want.items, BLOCK_BYTES):
        start += sum(map(len, records)) + FRAMING * len(records)
        parser.jump(start)
        chunks.seek(start)
        yield records
