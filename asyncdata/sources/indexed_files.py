"""IndexedFiles: files with an index of where each element begins, so that any element can be read by its number."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from asyncdata.errors import DataLossError
from asyncdata.formats.offset_index import Marks, OffsetIndex
from asyncdata.sources.index_storage import make_several, read_or_make
from asyncdata.sources.numbered_files import NumberedFiles
from asyncdata.storage import BLOCK_BYTES, AnyPart, StorageOptions, open_file, without_query

__all__ = ("Begins", "IndexedFiles")


@dataclass
class Begins:
    """Where elements begin, and whether the last of them is an error that replaces the rest of the file."""

    at: list[int]
    lost: bool = False


class IndexedFiles(NumberedFiles):
    """Files of one format, each with its index, which is read, or made and stored, when it is first needed."""

    kind: ClassVar[str]
    """The name of the elements, of at most eight letters."""

    def __init__(self, most: int, storage: StorageOptions | None = None) -> None:
        self.most = most
        self.storage = storage
        self.known: dict[str, OffsetIndex | OSError] = {}

    def scanned(self, file: AnyPart, name: str) -> Begins:
        """Return where the elements of a file begin: all that sequential reading gives, errors included."""
        raise NotImplementedError

    def element(self, data: bytes, name: str, begin: int, ends: bool) -> Any:
        """Return the element at `begin`, or the error in its place; `ends` if the error replaces the rest."""
        raise NotImplementedError

    def of(self, path: str) -> OffsetIndex | OSError:
        """Return the index of a file, or the error that it cannot be read."""
        if path not in self.known:
            self.known[path] = self.read_or_make_index(path)
        return self.known[path]

    def read_or_make_index(self, path: str) -> OffsetIndex | OSError:
        """Read or make the index of a file; return the error if the file cannot be read."""
        try:
            with open_file(path, self.storage) as file:
                marks = Marks(self.kind, self.most, *(status := file.status()))

                def made() -> OffsetIndex:
                    begins = self.scanned(file, without_query(path))
                    return OffsetIndex(marks, begins.at, begins.lost)

                return read_or_make(path, file, status, OffsetIndex.from_bytes, lambda one: one.marks == marks, made)
        except OSError as error:
            return error.with_traceback(None)

    def count(self, path: str) -> int:
        index = self.of(path)
        return 1 if isinstance(index, OSError) else index.count

    def counts(self, paths: Sequence[str]) -> list[int]:
        make_several(paths, self.known, self.of)
        return super().counts(paths)

    def size(self, path: str) -> int:
        index = self.of(path)
        return -1 if isinstance(index, OSError) else index.marks.size

    def offset(self, path: str, number: int) -> tuple[int, int, int]:
        index = self.of(path)
        return (0, 0, 0) if isinstance(index, OSError) else (number, index.span(number)[0], 0)

    def is_broken(self, path: str) -> bool:
        index = self.of(path)
        return isinstance(index, OSError) or index.lost

    def read_file(self, path: str, records: Sequence[int]) -> list[Any]:
        index = self.of(path)
        if isinstance(index, OSError):
            return [index] * len(records)
        name = without_query(path)
        with open_file(path, self.storage) as file:
            if file.status() != (index.marks.size, index.marks.changed_ns):
                raise DataLossError(f"{name}: the file has changed since its index was read; build the dataset again")
            return [self.read_one(file, index, name, record) for record in records]

    def read_one(self, file: AnyPart, index: OffsetIndex, name: str, record: int) -> Any:
        """Return one element, or the error in its place."""
        begin, span = index.span(record)
        ends = index.lost and record == index.count - 1
        try:
            return self.element(file.read_at(begin, min(span, self.most + SPARE)), name, begin, ends)
        except OSError as error:
            return copy.copy(error)

    def is_end(self, path: str, record: int) -> bool:
        index = self.of(path)
        return isinstance(index, OSError) or (index.lost and record == index.count - 1)


SPARE: Final = BLOCK_BYTES
"""How many bytes beyond the limit are read of an element that is too long, to detect it."""
