"""Tar archives of samples as a source: read in order, or any sample by its number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.formats.sample_decoders import Decoder, Decoders
from asyncdata.formats.tar import BLOCK
from asyncdata.formats.webdataset import SampleParser, apart
from asyncdata.graph.node import PHYSICAL
from asyncdata.sources.indexed_files import Begins, IndexedFiles
from asyncdata.sources.numbered_files import NumberedFile
from asyncdata.storage import BLOCK_BYTES, AnyPart, StorageOptions

__all__ = ("SampleFile", "SampleFiles")


class SampleFiles(IndexedFiles):
    """Archives of samples."""

    method: ClassVar = "WebDataset"
    kind: ClassVar = "samples"

    def __init__(
        self, decoders: Mapping[str, Decoder] | None, most: int, storage: StorageOptions | None = None
    ) -> None:
        super().__init__(most, storage)
        self.decoders = decoders

    def scanned(self, file: AnyPart, name: str) -> Begins:
        size, at = file.status().size, 0
        parser = SampleParser(name, self.most, Decoders(None))
        found = Begins([])
        while at < size and not parser.lost:
            data = file.read_at(at, min(BLOCK_BYTES, size - at))
            at += len(data)
            parser.feed(data)
            if at == size:
                add_begins(parser, found)
                parser.finish()
            add_begins(parser, found)
        if not size:
            parser.finish()
            add_begins(parser, found)
        found.lost = parser.lost
        return found

    def element(self, data: bytes, name: str, begin: int, ends: bool) -> Any:
        parser = SampleParser(name, self.most, Decoders(self.decoders))
        parser.jump(begin)
        parser.feed(data if ends else data + bytes(2 * BLOCK))
        if not (found := parser.parse(1)):
            parser.finish()
            found = parser.parse(1)
        if ends and not parser.lost:  # nothing is wrong with it but the samples before it
            return apart(name, parser.key, f"byte {begin}")
        return found[0]


def add_begins(parser: SampleParser, found: Begins) -> None:
    """Add the offsets of the samples that a parser finds."""
    while True:
        begin = parser.offset
        if not parser.parse(1):
            return
        found.at.append(begin)


@dataclass(frozen=True, eq=False)
class SampleFile(NumberedFile):
    """The samples in one archive, as dicts."""

    method: ClassVar[str] = "WebDataset"

    decoders: Mapping[str, Decoder] | None = field(default=None, kw_only=True, repr=False)
    max_record_bytes: int = field(default=MAX_RECORD_BYTES, kw_only=True, metadata=PHYSICAL)

    def parser(self, compressed: bool) -> SampleParser:
        return SampleParser(self.shown, self.max_record_bytes, Decoders(self.decoders), compressed=compressed)
