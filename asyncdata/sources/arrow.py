"""Arrow's IPC files and streams as a source of rows, read a record batch at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from asyncdata.formats.arrow_rows import ArrowParser
from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.graph.node import PHYSICAL
from asyncdata.sources.parsed_files import ParsedFile
from asyncdata.storage import read_head

__all__ = ("ArrowFile",)

HEAD: Final = 1 << 16
"""Bytes read from the beginning of a file that is resumed in its middle: nearly all schemas are shorter."""


@dataclass(frozen=True, eq=False)
class ArrowFile(ParsedFile):
    """The rows of one file, as dicts of columns' values."""

    method: ClassVar[str] = "ArrowDataset"

    columns: Sequence[str] | None = field(default=None, kw_only=True)
    max_record_bytes: int = field(default=MAX_RECORD_BYTES, kw_only=True, metadata=PHYSICAL)

    @property
    def signature(self) -> Any:
        return None

    @property
    def identity(self) -> str:
        """The label with the columns, as they change the elements."""
        return super().identity if self.columns is None else f"{super().identity[:-1]}, columns={self.columns})"

    def parser(self, compressed: bool) -> ArrowParser:
        return ArrowParser(self.shown, self.columns, self.max_record_bytes)

    async def begin_at(self, parser: ArrowParser, offset: int) -> None:
        size = HEAD
        while offset and parser.start(head := await read_head(self.path, size, self.storage)) and len(head) == size:
            size *= 16
        parser.jump(offset)
