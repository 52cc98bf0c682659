"""Text files as a source of lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from asyncdata.elements.spec import TensorSpec
from asyncdata.formats.lines import LineParser
from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.graph.node import PHYSICAL
from asyncdata.sources.parsed_files import ParsedFile

__all__ = ("LineFile",)


@dataclass(frozen=True, eq=False)
class LineFile(ParsedFile):
    """The lines of one file, as bytes."""

    method: ClassVar[str] = "TextLineDataset"

    max_record_bytes: int = field(default=MAX_RECORD_BYTES, kw_only=True, metadata=PHYSICAL)

    @property
    def signature(self) -> Any:
        return TensorSpec((), object)

    def parser(self, compressed: bool) -> LineParser:
        return LineParser(self.shown, self.max_record_bytes, compressed=compressed)
