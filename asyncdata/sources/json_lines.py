"""Files of JSON Lines as a source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from asyncdata.formats.json_lines import JsonLinesParser
from asyncdata.sources.text_lines import LineFile

__all__ = ("JsonLinesFile",)


@dataclass(frozen=True, eq=False)
class JsonLinesFile(LineFile):
    """The values on the lines of one file."""

    method: ClassVar[str] = "JsonLinesDataset"

    def parser(self, compressed: bool) -> JsonLinesParser:
        return JsonLinesParser(self.shown, self.max_record_bytes, compressed=compressed)

    @property
    def signature(self) -> Any:
        return None
