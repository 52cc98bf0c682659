"""Files of records of a fixed length as a source: read in order, or any record by its number."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, ClassVar

from asyncdata.elements.spec import TensorSpec
from asyncdata.errors import DataLossError
from asyncdata.formats.fixed_length import FixedLayout, FixedParser
from asyncdata.graph.node import PHYSICAL
from asyncdata.runtime.block import Demand
from asyncdata.sources.file_contents import FileContents
from asyncdata.sources.numbered_files import NumberedFile, NumberedFiles
from asyncdata.sources.parsed_files import ParsedChunk
from asyncdata.storage import BLOCK_BYTES, Entry, StorageOptions, is_local_or_cached, open_file, size_of, without_query

__all__ = ("FixedFile", "FixedFiles")


class FixedFiles(NumberedFiles):
    """Files of one layout: the number of records follows from the size, which is read once."""

    counted: ClassVar = ("layout",)
    method: ClassVar = "FixedLengthRecordDataset"

    def __init__(self, layout: FixedLayout, storage: StorageOptions | None = None) -> None:
        self.layout = layout
        self.storage = storage
        self.sizes: dict[str, int] = {}

    def size(self, path: str) -> int:
        """Return the size that a file had when it was first requested, -1 if it was missing."""
        if path not in self.sizes:
            self.sizes[path] = size_of(path, self.storage)
        return self.sizes[path]

    def count(self, path: str) -> int:
        """Return how many elements a file has; a missing file or one of another layout has one, its error."""
        count = self.layout.count(self.size(path))
        return 1 if count is None else count

    def offset(self, path: str, number: int) -> tuple[int, int, int]:
        return number, 0 if self.is_broken(path) else self.layout.begin(number), 0

    def is_broken(self, path: str) -> bool:
        return self.layout.count(self.size(path)) is None

    def at_once(self) -> int:
        return min(4096, BLOCK_BYTES // self.layout.record_bytes)

    def read_file(self, path: str, records: Sequence[int]) -> list[bytes]:
        """Return some records of one file."""
        with open_file(path, self.storage) as file:
            self.check(path, file.status().size)
            begins = list(map(self.layout.begin, records))
            data = [file.read_at(begin, self.layout.record_bytes) for begin in begins]
        if any(len(record) < self.layout.record_bytes for record in data):
            raise DataLossError(f"{without_query(path)}: it ends earlier than when it was opened")
        return data

    def check(self, path: str, size: int) -> None:
        """Raise unless the size is the one that the file had when the dataset was made, and fits the layout."""
        if self.layout.count(size) is None:
            raise self.layout.misfit(without_query(path), size)
        known = self.sizes.get(path, size)
        if known != size:
            then = "could not be read" if known < 0 else f"had {known} bytes"
            raise DataLossError(f"{without_query(path)}: it {then} when the dataset first looked, now it has {size}")


@dataclass(frozen=True, eq=False)
class FixedFile(NumberedFile):
    """The records of one file, as bytes. A file whose size does not fit has one element, the error."""

    method: ClassVar[str] = "FixedLengthRecordDataset"
    numbered_anywhere = True

    files: FixedFiles = field(kw_only=True, repr=False)
    layout: FixedLayout = field(kw_only=True, repr=False, metadata=PHYSICAL)

    @property
    def numbered(self) -> FixedFiles | None:
        return self.files if not self.compression and is_local_or_cached(self.path, self.storage) else None

    @property
    def signature(self) -> Any:
        return TensorSpec((), object)

    def parser(self, compressed: bool) -> FixedParser:
        return FixedParser(self.shown, self.layout)

    async def parts(
        self, contents: FileContents, entry: Entry, want: Demand, offset: int
    ) -> AsyncGenerator[ParsedChunk, None]:
        if not self.compression and entry.size >= 0:
            try:
                self.files.check(self.path, entry.size)
            except DataLossError as error:
                yield ParsedChunk([error], offset, lost=True)
                return
        async with aclosing(super().parts(contents, entry, want, offset)) as source:
            async for found in source:
                yield found

    @property
    def recognises(self) -> bool:
        return False  # any bytes may be records
