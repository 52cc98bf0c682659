"""CSV files as a source of tuples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from asyncdata.elements.spec import TensorSpec
from asyncdata.formats.csv import CsvParser, Dialect, Table
from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.graph.node import PHYSICAL
from asyncdata.sources.parsed_files import ParsedFile

__all__ = ("CsvFile",)


@dataclass(frozen=True, eq=False)
class CsvFile(ParsedFile):
    """The records of one file, as tuples."""

    method: ClassVar[str] = "CsvDataset"

    dialect: Dialect = field(kw_only=True, repr=False)
    table: Table = field(kw_only=True, repr=False)
    max_record_bytes: int = field(default=MAX_RECORD_BYTES, kw_only=True, metadata=PHYSICAL)

    def parser(self, compressed: bool) -> CsvParser:
        most = self.max_record_bytes
        return CsvParser(self.shown, self.dialect, self.table, most, compressed=compressed)

    @property
    def signature(self) -> Any:
        return tuple([TensorSpec((), column.dtype) for column in self.table.columns])
