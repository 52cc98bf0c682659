"""CSV files as a source of tuples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from asyncdata.formats.csv import CsvLayout, CsvParser
from asyncdata.sources.parsed import ParsedFile
from asyncdata.structure import TensorSpec

__all__ = ("CsvFile",)


@dataclass(frozen=True, eq=False)
class CsvFile(ParsedFile):
    """The records of one file, as tuples of values. What is wrong with one is a failure in its place."""

    method: ClassVar[str] = "CsvDataset"

    layout: CsvLayout = field(kw_only=True)

    @property
    def signature(self) -> Any:
        return tuple([TensorSpec((), column.dtype or np.dtype(object)) for column in self.layout.columns])

    def parser(self) -> CsvParser:
        return CsvParser(self.layout)
