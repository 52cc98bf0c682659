"""TFRecord files as a source."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from asyncdata.errors import DataLossError
from asyncdata.formats.tfrecord import RecordParser, decompressor
from asyncdata.plan import Node
from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.executors import noted
from asyncdata.runtime.scope import Scope
from asyncdata.runtime.stage import Produce
from asyncdata.storage import store_for
from asyncdata.structure import TensorSpec

__all__ = ("BLOCK_BYTES", "RecordFile")

BLOCK_BYTES: Final = 1 << 20


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
        try:
            async with aclosing(self.chunks(scope)) as chunks:
                async for chunk in chunks:
                    parser.feed(chunk)
                    while records := parser.parse(want.items):
                        yield records
        except (OSError, DataLossError) as error:
            yield [error]
            return
        parser.finish()
        while records := parser.parse(want.items):
            yield records

    async def chunks(self, scope: Scope) -> AsyncGenerator[Any, None]:
        """Yield the file's bytes, decompressed in a thread if they are compressed."""
        store, path = store_for(self.path)
        expand = decompressor(self.compression, self.path)
        async with aclosing(store.stream(path, self.block_bytes, in_thread=scope.in_thread)) as stream:
            async for data in stream:
                yield await scope.in_thread(partial(expand.feed, data)) if self.compression else data
        expand.finish()
