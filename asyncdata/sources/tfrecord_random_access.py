"""The indexes of a dataset's TFRecord files, read or made when needed, and reads of records by number."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from asyncdata.errors import DataLossError
from asyncdata.executors.function_call import noted
from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.formats.tfrecord_index import HEADER, RecordIndex, Stamp, changed, damaged_span, lost_record, records_in
from asyncdata.runtime.block import Failure
from asyncdata.sources.index_storage import explain_compressed, make_several, read_or_make
from asyncdata.sources.numbered_files import NumberedFiles
from asyncdata.sources.parsed_files import Spot, explain_path
from asyncdata.storage import BLOCK_BYTES, AnyPart, StorageOptions, open_file, without_query

__all__ = ("IndexCache", "of_another_count")


class IndexCache(NumberedFiles):
    """The indexes of files by path, each read or made once, when it is first needed."""

    method: ClassVar = "TFRecordDataset"

    def __init__(
        self,
        most: int = MAX_RECORD_BYTES,
        storage: StorageOptions | None = None,
        samples: Mapping[str, int] | None = None,
    ) -> None:
        self.most = most  # a longer record is an error that ends its file
        self.storage = storage
        self.samples = samples or {}
        """How many records files have by the index of their folder."""
        self.known: dict[str, RecordIndex] = {}

    def of(self, path: str) -> RecordIndex:
        known = self.known.get(path)  # read once, as another thread may remove it, see `now`
        return (
            self.known.setdefault(path, read_or_make_index(path, self.storage).limited(self.most))
            if known is None
            else known
        )

    def now(self, path: str) -> RecordIndex:
        """Return the index of the current version of a file."""
        known = self.known.get(path)
        if known is not None:
            with open_file(path, self.storage) as file:
                if file.status() != known.stamp:
                    self.known.pop(path, None)
        return self.of(path)

    def count(self, path: str) -> int:
        return self.of(path).count

    def size(self, path: str) -> int:
        return self.of(path).stamp.size

    def offset(self, path: str, number: int) -> tuple[int, int, int]:
        return number, self.of(path).span(number)[0], 0

    def is_broken(self, path: str) -> bool:
        index = self.of(path)
        return index.count > index.intact_count

    def counts(self, paths: Sequence[str]) -> list[int]:
        make_several(paths, self.known, self.of)
        for path in paths:
            count = self.count(path)
            if count != (expected := self.samples.get(path, count)) and not self.is_broken(path):
                raise of_another_count(path, count, expected)
        return super().counts(paths)

    def at_once(self) -> int:
        return sys.maxsize  # `GatherRead` limits the bytes

    def read(self, spots: Sequence[Spot]) -> list[Any]:
        return GatherRead(self, spots).read()


def of_another_count(path: str, count: int, expected: int | None) -> DataLossError:
    """Return the error of a file that has other records than the index of its folder says."""
    return DataLossError(
        f"{without_query(path)}: it has {count} records, and {expected} by the index of its folder: it is cut short, "
        "or another file"
    )


def read_or_make_index(path: str, storage: StorageOptions | None) -> RecordIndex:
    """Read or make the index of a file; if the file cannot be read, the index holds the error."""
    try:
        with open_file(path, storage) as file:
            stamp = Stamp(*(status := file.status()))
            parse, make = RecordIndex.from_bytes, lambda: RecordIndex.of(file.read_at, stamp)
            return read_or_make(path, file, status, parse, lambda one: one.stamp == stamp, make)
    except OSError as error:
        return RecordIndex.unreadable(error.with_traceback(None))


def peek(file: AnyPart, offset: int, buffer: memoryview) -> int:
    return file.peek_at(offset, buffer)


def fill_all(file: AnyPart, offset: int, buffer: memoryview) -> int:
    return file.fill_at(offset, buffer)


class GatherRead:
    """Reads records of several files into one buffer, as if they were consecutive in one file."""

    def __init__(self, indexes: IndexCache, spots: Sequence[Spot]) -> None:
        self.indexes = indexes
        self.spots = spots
        self.begins: list[int] = []
        self.spans: list[int] = []  # 0 for records that are lost
        self.stops = [0]
        self.files: dict[str, list[int]] = {}
        self.errors: dict[int, Exception] = {}

    def read(self) -> list[Any]:
        """Return the records in order, about a block of bytes, up to one that does not exist. Thread-safe.

        Records in the page cache are read first, while the kernel loads the others.
        """
        self.choose()
        self.buffer = np.empty(self.stops[-1], np.uint8).data
        self.sizes = [0] * len(self.spans)
        for fill in (peek, fill_all):
            for path, places in self.files.items():
                if left := [place for place in places if self.sizes[place] < self.spans[place]]:
                    self.fill(path, left, fill)
        records = records_in(self.buffer, self.spans) if self.sizes == self.spans else None
        return records or [self.record(place) for place in range(len(self.spans))]

    def choose(self) -> None:
        """Look up the offsets of the records."""
        stop = 0
        for place, (path, record) in enumerate(self.spots):
            index = self.indexes.of(path)
            if record >= index.count or stop > BLOCK_BYTES:
                break
            begin, span = index.span(record)
            stop += span
            self.files.setdefault(path, []).append(place)
            self.begins.append(begin)
            self.spans.append(span)
            self.stops.append(stop)

    def fill(self, path: str, places: Sequence[int], fill: Callable[[AnyPart, int, memoryview], int]) -> None:
        """Read records of one file."""
        try:
            with self.open_checked(path) as file:
                for place in places:
                    part = self.buffer[self.stops[place] : self.stops[place + 1]]
                    try:
                        self.sizes[place] = fill(file, self.begins[place], part)
                    except OSError as error:
                        self.errors[place] = error.with_traceback(None)  # a traceback would keep the buffer alive
        except (OSError, DataLossError) as error:
            self.errors.update((place, copy.copy(error)) for place in places)

    @contextmanager
    def open_checked(self, path: str) -> Generator[AnyPart]:
        """Open a file; raise if it has changed since its index was made."""
        index = self.indexes.of(path)
        if index.error:
            raise copy.copy(index.error)
        with open_file(path, self.indexes.storage) as file:
            if file.status() != index.stamp:
                raise changed(path)
            yield file

    def record(self, place: int) -> bytes | Failure:
        """Return one record, or the failure that sequential reading gives in its place."""
        (path, record), begin, span = self.spots[place], self.begins[place], self.spans[place]
        start = self.stops[place]
        data = self.buffer[start : start + self.sizes[place]]
        if span and (found := records_in(data, [span])):
            return found[0]
        error = self.errors.get(place)
        if error is None:
            error = lost_record(data, path, begin, self.indexes.most) if span else self.lost(path, begin)
        explain_compressed(error, path, self.indexes.storage)
        explain_path(error, path)
        return noted(error, f"TFRecordDataset({path})", record, not span)

    def lost(self, path: str, begin: int) -> Exception:
        """Return the error of a file at the end of its index."""
        try:
            with self.open_checked(path) as file:
                span = damaged_span(file.read_at(begin, HEADER), self.indexes.most)
                left = file.status().size - begin
                return lost_record(file.read_at(begin, min(span, left)), path, begin, self.indexes.most)
        except (OSError, DataLossError) as error:
            return error.with_traceback(None)
