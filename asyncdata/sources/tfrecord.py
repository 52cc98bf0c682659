"""TFRecord files as a source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from asyncdata.elements.spec import TensorSpec
from asyncdata.errors import DataLossError
from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.formats.tfrecord import FRAMING, HEADER, RecordParser, length_intact, read_large
from asyncdata.graph.node import PHYSICAL
from asyncdata.runtime.block import Demand
from asyncdata.sources.numbered_files import NumberedFile
from asyncdata.sources.parsed_files import ParsedChunk, Parser
from asyncdata.sources.tfrecord_random_access import of_another_count
from asyncdata.storage import BLOCK_BYTES, FileStream

__all__ = ("RecordFile",)


@dataclass(frozen=True, eq=False)
class RecordFile(NumberedFile):
    """The records of one TFRecord file, as bytes."""

    method: ClassVar[str] = "TFRecordDataset"

    max_record_bytes: int = field(default=MAX_RECORD_BYTES, kw_only=True, metadata=PHYSICAL)
    samples: int | None = field(default=None, kw_only=True, repr=False, metadata=PHYSICAL)
    """How many records it has by the index of its folder."""

    @property
    def signature(self) -> Any:
        return TensorSpec((), object)

    def parser(self, compressed: bool) -> RecordParser:
        return RecordParser(self.shown, compressed=compressed, most=self.max_record_bytes)

    def wrong_count(self, count: int) -> DataLossError | None:
        return None if self.samples in (None, count) else of_another_count(self.path, count, self.samples)

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
