"""Files of NumPy arrays as a source of rows: read in order, or any row by its number."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np

from asyncdata.elements.structure import map_leaves
from asyncdata.errors import DataLossError
from asyncdata.formats.column_parser import part_of
from asyncdata.formats.npy import NpyHeader, header_of
from asyncdata.formats.npy_rows import HEADER_BYTES, MAX_FILE_BYTES, NpyParser, is_by_rows, is_numpys
from asyncdata.graph.node import PHYSICAL
from asyncdata.sources.files_with_headers import FilesWithHeaders, KnownFile, check_unchanged
from asyncdata.sources.numbered_files import NumberedFile
from asyncdata.storage import BLOCK_BYTES, AnyPart, StorageOptions, open_file, read_head, without_query

__all__ = ("NpyFile", "NpyFiles")

HEAD: Final = 1024
"""Bytes read from the beginning of a file that is resumed in its middle: nearly all headers are shorter."""


@dataclass
class KnownArrays(KnownFile):
    """The header of a file, or all of its arrays if rows are not stored one after another."""

    header: NpyHeader | None = None
    columns: Any = None


class NpyFiles(FilesWithHeaders[KnownArrays]):
    """Files of arrays, whose headers are read once."""

    method: ClassVar = "NpyDataset"
    known_file = KnownArrays

    def __init__(self, most: int = MAX_FILE_BYTES, storage: StorageOptions | None = None) -> None:
        super().__init__(storage)
        self.most = most

    def inspect(self, file: AnyPart, path: str) -> KnownArrays:
        """Read the header or the arrays of a file."""
        status = file.status()
        head = file.read_at(0, HEADER_BYTES)
        try:
            header = header_of(head)
        except ValueError:
            header = None
        parser = NpyParser(without_query(path), self.most)
        if header is None or not is_by_rows(header):
            parser.feed(file.read_at(0, min(status.size, self.most + HEADER_BYTES)) if is_numpys(head) else head)
            return self.drained(parser, KnownArrays(status, header=header))
        rows = min(header.shape[0], (status.size - header.begin) // header.row_bytes)
        known = KnownArrays(status, rows, header=header)
        if status.size != header.begin + header.nbytes:
            end = header.begin + rows * header.row_bytes
            parser.start(file.read_at(0, header.begin))
            parser.jump(end)
            parser.feed(file.read_at(end, min(header.row_bytes, status.size - end)))
            self.drained(parser, known)
        return known

    def drained(self, parser: NpyParser, known: KnownArrays) -> KnownArrays:
        """Add the arrays or the error that a parser finds in its data."""
        parser.finish()
        try:
            if (found := parser.decoded()) is not None:
                known.columns, known.records = found
                parser.decoded()
        except DataLossError as error:
            known.error = error.with_traceback(None)
        return known

    def offset(self, path: str, number: int) -> tuple[int, int, int]:
        known = self.of(path)
        if known.columns is not None or known.header is None or not is_by_rows(known.header):
            return 0, 0, number
        return number, known.header.begin + number * known.header.row_bytes, 0

    def at_once(self) -> int:
        sizes = [known.header.row_bytes for known in self.known.values() if known.header is not None]
        return min(4096, BLOCK_BYTES // max(1, *sizes, 1))

    def read_file(self, path: str, records: Sequence[int]) -> list[Any]:
        known = self.of(path)
        if known.columns is not None:
            return [known.error or self.row_of(known.columns, record) for record in records]
        with open_file(path, self.storage) as file:
            check_unchanged(path, file, known.status)
            return [self.row_at(file, known, record) for record in records]

    def row_of(self, columns: Any, record: int) -> Any:
        """Return a copy of a row of arrays in memory."""
        row = part_of(columns, record, record + 1)
        return map_leaves(lambda array, _: copy.copy(array[0]), row)

    def row_at(self, file: AnyPart, known: KnownArrays, record: int) -> Any:
        """Read a row from a file."""
        header = known.header
        if header is None or record >= known.records:
            return known.error
        begin = header.begin + record * header.row_bytes
        data = bytearray(file.read_at(begin, header.row_bytes))
        return np.frombuffer(data, header.dtype).reshape(1, *header.shape[1:])[0]


@dataclass(frozen=True, eq=False)
class NpyFile(NumberedFile):
    """The rows of the array, or the arrays, in one file."""

    method: ClassVar[str] = "NpyDataset"

    max_file_bytes: int = field(default=MAX_FILE_BYTES, kw_only=True, metadata=PHYSICAL)

    def is_plain(self, head: bytes) -> bool:
        return head.startswith(b"PK")  # .npz is a zip file

    def parser(self, compressed: bool) -> NpyParser:
        return NpyParser(self.shown, self.max_file_bytes)

    async def begin_at(self, parser: NpyParser, offset: int) -> None:
        if offset and parser.start(await read_head(self.path, HEAD, self.storage)):
            parser.start(await read_head(self.path, HEADER_BYTES, self.storage))
        parser.jump(offset)
