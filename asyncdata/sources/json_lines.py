"""Files of JSON Lines as a source: read in order, or any value by its number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from asyncdata.errors import DataLossError
from asyncdata.formats.json_lines import JsonLinesParser, line_begins
from asyncdata.formats.json_values import NO_JSON, decoder
from asyncdata.sources.indexed_files import Begins, IndexedFiles
from asyncdata.sources.numbered_files import NumberedFile
from asyncdata.sources.text_lines import LineFile
from asyncdata.storage import BLOCK_BYTES, AnyPart

__all__ = ("JsonLinesFile", "JsonLinesFiles")


class JsonLinesFiles(IndexedFiles):
    """Files of lines that are not blank."""

    method: ClassVar = "JsonLinesDataset"
    kind: ClassVar = "json"

    def scanned(self, file: AnyPart, name: str) -> Begins:
        size, at, rest = file.status().size, 0, b""
        begins: list[int] = []
        while at < size:
            data = rest + file.read_at(at, min(BLOCK_BYTES, size - at))
            begin, at = at - len(rest), at - len(rest) + len(data)
            complete = data if at == size else data[: data.rfind(b"\n") + 1]
            found, long = line_begins(complete, begin, self.most)
            begins += found
            rest = data[len(complete) :]
            if not long and len(rest) > self.most:
                begins.append(at - len(rest))
                long = True
            if long:
                return Begins(begins, lost=True)
        return Begins(begins)

    def element(self, data: bytes, name: str, begin: int, ends: bool) -> Any:
        if len(data) <= self.most:
            try:
                return decoder()(data)
            except NO_JSON:  # or valid only for Python's `json`
                pass
        parser = JsonLinesParser(name, self.most)
        parser.jump(begin)
        parser.feed(data)
        parser.finish()
        found = parser.parse(1)
        return found[0] if found else DataLossError(f"{name}: there is no line at byte {begin}")


@dataclass(frozen=True, eq=False)
class JsonLinesFile(LineFile, NumberedFile):
    """The values on the lines of one file."""

    method: ClassVar[str] = "JsonLinesDataset"

    def parser(self, compressed: bool) -> JsonLinesParser:
        return JsonLinesParser(self.shown, self.max_record_bytes, compressed=compressed)

    @property
    def signature(self) -> Any:
        return None
