"""Tar archives of samples as a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.formats.sample_decoders import Decoder, Decoders
from asyncdata.formats.webdataset import SampleParser
from asyncdata.graph.node import PHYSICAL
from asyncdata.sources.parsed_files import ParsedFile

__all__ = ("SampleFile",)


@dataclass(frozen=True, eq=False)
class SampleFile(ParsedFile):
    """The samples in one archive, as dicts."""

    method: ClassVar[str] = "WebDataset"

    decoders: Mapping[str, Decoder] | None = field(default=None, kw_only=True, repr=False)
    max_record_bytes: int = field(default=MAX_RECORD_BYTES, kw_only=True, metadata=PHYSICAL)

    def parser(self, compressed: bool) -> SampleParser:
        return SampleParser(self.shown, self.max_record_bytes, Decoders(self.decoders), compressed=compressed)

    @property
    def signature(self) -> Any:
        return None
