"""IndexedFiles: files of which an index tells where each element begins, so that any can be read by its number."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from asyncdata.errors import DataLossError
from asyncdata.formats.offset_index import Marks, OffsetIndex
from asyncdata.runtime.tickets import END, Position
from asyncdata.sources.numbered_files import NumberedFiles
from asyncdata.sources.tfrecord_random_access import LARGEST_EMPTY, READERS, keep, places
from asyncdata.storage import BLOCK_BYTES, AnyPart, StorageOptions, opened, without_query

__all__ = ("Begins", "IndexedFiles")


@dataclass
class Begins:
    """Where elements begin, and whether the last of them stands for the rest of the file."""

    at: list[int]
    lost: bool = False


class IndexedFiles(NumberedFiles):
    """Files of one format, each with its index: read, or made and kept, when it is first needed, and once."""

    kind: ClassVar[str]
    """The elements, in eight letters at most."""

    def __init__(self, most: int, storage: StorageOptions | None = None) -> None:
        self.most = most
        self.storage = storage
        self.known: dict[str, OffsetIndex | OSError] = {}

    def scanned(self, file: AnyPart, name: str) -> Begins:
        """Return where the elements of a file begin: all that reading it in order gives, errors among them."""
        raise NotImplementedError

    def element(self, data: bytes, name: str, begin: int, ends: bool) -> Any:
        """Return the element that lies at `begin`, or the error in its place; `ends` if it stands for the rest."""
        raise NotImplementedError

    def of(self, path: str) -> OffsetIndex | OSError:
        """Return the index of a file, or why it cannot be read."""
        if path not in self.known:
            self.known[path] = self.found_or_made(path)
        return self.known[path]

    def found_or_made(self, path: str) -> OffsetIndex | OSError:
        """Return an index that is kept and still fits, else a new one, kept where that is possible."""
        try:
            with opened(path, self.storage) as file:
                marks = Marks(self.kind, self.most, *file.status())
                index = next(self.kept(path, marks), None)
                if index is None:
                    begins = self.scanned(file, without_query(path))
                    index = OffsetIndex(marks, begins.at, begins.lost)
                    if file.status() == (marks.size, marks.changed_ns):
                        keep(path, index)
                return index
        except OSError as error:
            return error.with_traceback(None)

    def kept(self, path: str, marks: Marks) -> Iterator[OffsetIndex]:
        """Yield the indexes of a file that lie somewhere and are of what it is now."""
        for place in places(path):
            with suppress(OSError, ValueError):
                if place.stat().st_size > marks.size + LARGEST_EMPTY:
                    continue
                index = OffsetIndex.from_bytes(place.read_bytes())
                if index.marks == marks:
                    yield index

    def count(self, path: str) -> int:
        index = self.of(path)
        return 1 if isinstance(index, OSError) else index.count

    def counts(self, paths: Sequence[str]) -> list[int]:
        new = [path for path in dict.fromkeys(paths) if path not in self.known]
        if len(new) > 1:
            pool = ThreadPoolExecutor(min(READERS, len(new)), "asyncdata-index")
            try:
                list(pool.map(self.of, new))
            finally:
                pool.shutdown(cancel_futures=True)
        return super().counts(paths)

    def position(self, path: str, number: int) -> Position:
        index = self.of(path)
        if number >= self.count(path):
            return END
        name = os.path.basename(without_query(path))
        if isinstance(index, OSError):
            return [name, -1, 0, 0, 0]
        return [name, index.marks.size, number, index.span(number)[0], 0]

    def read_file(self, path: str, records: Sequence[int]) -> list[Any]:
        index = self.of(path)
        if isinstance(index, OSError):
            return [index] * len(records)
        name = without_query(path)
        with opened(path, self.storage) as file:
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
"""Of an element that is too long, so many bytes more than are allowed show it."""
