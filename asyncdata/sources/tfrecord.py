"""TFRecord files as a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from asyncdata.errors import DataLossError
from asyncdata.executors.scope import Scope
from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.formats.tfrecord import FRAMING, HEADER, RecordParser, length_intact, read_large
from asyncdata.graph.node import PHYSICAL
from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.runtime.block import Blocks, Demand
from asyncdata.runtime.tickets import Position, Ticket
from asyncdata.sources.index_storage import explain_compressed
from asyncdata.sources.parsed_files import ParsedChunk, ParsedFile, Parser
from asyncdata.sources.tfrecord_random_access import IndexCache, of_another_count
from asyncdata.storage import BLOCK_BYTES, FileStream

__all__ = ("RecordFile",)


@dataclass(frozen=True, eq=False)
class RecordFile(ParsedFile):
    """The records of one TFRecord file, as bytes."""

    method: ClassVar[str] = "TFRecordDataset"

    indexes: IndexCache | None = field(default=None, metadata=PHYSICAL)
    max_record_bytes: int = field(default=MAX_RECORD_BYTES, kw_only=True, metadata=PHYSICAL)
    samples: int | None = field(default=None, kw_only=True, repr=False, metadata=PHYSICAL)
    """How many records it has by the index of its folder."""

    @property
    def recognises(self) -> bool:
        return self.indexes is None  # only uncompressed files have an index

    def parser(self, compressed: bool) -> RecordParser:
        return RecordParser(self.shown, compressed=compressed, most=self.max_record_bytes)

    def wrong_count(self, count: int) -> DataLossError | None:
        return None if self.samples in (None, count) else of_another_count(self.path, count, self.samples)

    def explain(self, error: Exception, ordinal: int) -> None:
        if self.indexes is not None:
            explain_compressed(error, self.path, self.storage)
        super().explain(error, ordinal)

    def is_plain(self, head: bytes) -> bool:
        """Return whether the first bytes are a length and its checksum."""
        return len(head) == HEADER and length_intact(head, 0)

    def direct_records(self, stream: object, parser: Parser, want: Demand) -> Iterator[ParsedChunk]:
        """Yield large records that are in the page cache, starting with the one that the parser has read partly."""
        if not isinstance(stream, FileStream) or not isinstance(parser, RecordParser) or (at := parser.cut) is None:
            return
        while records := read_large(stream, at, want.items, BLOCK_BYTES, self.max_record_bytes):
            begin, at = at, at + sum(map(len, records)) + FRAMING * len(records)
            parser.jump(at)
            stream.seek(at)
            yield ParsedChunk(records, begin, end=at)

    @property
    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY if self.indexes is None else self.indexes.of(self.path).count

    @property
    def random_access(self) -> bool:
        return self.indexes is not None

    def seek(self, count: int) -> Position:
        return super().seek(count) if self.indexes is None else self.indexes.position(self.path, count)

    @property
    def source_fails(self) -> bool:
        return self.indexes is not None and self.indexes.is_broken(self.path)

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        if self.indexes is None:
            return super().fetch(scope, want, tickets)
        return self.indexes.fetch([(self.path, record) for record in tickets], scope, want, tickets)
