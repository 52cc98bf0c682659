"""Text files as a source of lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from asyncdata.formats.lines import LineParser
from asyncdata.sources.parsed import ParsedFile

__all__ = ("LineFile",)


@dataclass(frozen=True, eq=False)
class LineFile(ParsedFile):
    """The lines of one file, as bytes."""

    method: ClassVar[str] = "TextLineDataset"

    def parser(self) -> LineParser:
        return LineParser()
