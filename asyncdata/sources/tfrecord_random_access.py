"""The indexes of a dataset's TFRecord files: read, or made and kept, when they are needed; and records read by them."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from asyncdata.errors import DataLossError
from asyncdata.executors.function_call import noted
from asyncdata.executors.scope import Scope
from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.formats.tfrecord_index import HEADER, RecordIndex, Stamp, changed, damaged_span, lost_record, records_in
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.tickets import END, Position, ReplayedTickets, Ticket
from asyncdata.sources.index_storage import make_several, read_or_make
from asyncdata.sources.parsed_files import Spot
from asyncdata.storage import (
    BLOCK_BYTES,
    AnyPart,
    StorageOptions,
    opened,
    without_query,
)

__all__ = ("IndexCache",)

FEW: Final = 64
"""So many records are read at once if so many are asked for, however few are wanted now: a thread has its price."""


class IndexCache:
    """The indexes of files by path, each read, or made, when it is first needed, and once."""

    def __init__(self, most: int = MAX_RECORD_BYTES, storage: StorageOptions | None = None) -> None:
        self.most = most  # a longer record is an error, and the end of its file
        self.storage = storage
        self.known: dict[str, RecordIndex] = {}

    def of(self, path: str) -> RecordIndex:
        """Return the index of one file."""
        known = self.known.get(path)  # asked once: another thread may let go of it, see `now`
        return (
            self.known.setdefault(path, found_or_made(path, self.storage).limited(self.most))
            if known is None
            else known
        )

    def now(self, path: str) -> RecordIndex:
        """Return the index of one file as it is now, which may be another than before."""
        known = self.known.get(path)
        if known is not None:
            with opened(path, self.storage) as file:
                if file.status() != known.stamp:
                    self.known.pop(path, None)
        return self.of(path)

    def position(self, path: str, number: int) -> Position:
        """Return the position of a record, as reading the file in order gives it; the end behind the last."""
        index = self.of(path)
        if number >= index.count:
            return END
        return [os.path.basename(without_query(path)), index.stamp.size, number, index.span(number)[0], 0]

    def counts(self, paths: Sequence[str]) -> list[int]:
        """Return how many elements each file has."""
        make_several(paths, self.known, self.of)
        return [self.of(path).count for path in paths]

    def fetch(self, spots: Sequence[Spot], scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Yield the records that lie at these spots and have these tickets, in order, up to one that is not there."""
        return gathered(self, spots, scope, want, tickets)


def found_or_made(path: str, storage: StorageOptions | None) -> RecordIndex:
    """Return the index of a file, which says so if it cannot be read."""
    try:
        with opened(path, storage) as file:
            stamp = Stamp(*(status := file.status()))
            parse, make = RecordIndex.from_bytes, lambda: RecordIndex.of(file.read_at, stamp)
            return read_or_make(path, file, status, parse, lambda one: one.stamp == stamp, make)
    except OSError as error:
        return RecordIndex.unreadable(error.with_traceback(None))


def peek(file: AnyPart, offset: int, buffer: memoryview) -> int:
    return file.peek_at(offset, buffer)


def fill_all(file: AnyPart, offset: int, buffer: memoryview) -> int:
    return file.fill_at(offset, buffer)


async def gathered(
    indexes: IndexCache, spots: Sequence[Spot], scope: Scope, want: Demand, tickets: Sequence[Ticket]
) -> Blocks:
    """Yield the records that lie at these spots and have these tickets, in this order, up to one that is not there."""
    done = 0
    while done < len(spots):
        items = await scope.in_thread(GatherRead(indexes, spots[done : done + max(want.items, FEW)]).read)
        if not items:
            return
        while items:
            part, items = items[: want.items], items[want.items :]
            yield Block(part, ReplayedTickets(tickets, done, done + len(part), END), Failure in set(map(type, part)))
            done += len(part)


class GatherRead:
    """Reads records of some files into one buffer, as if they followed each other in a file."""

    def __init__(self, indexes: IndexCache, spots: Sequence[Spot]) -> None:
        self.indexes = indexes
        self.spots = spots
        self.begins: list[int] = []
        self.spans: list[int] = []  # 0 for what is known to be lost
        self.stops = [0]
        self.files: dict[str, list[int]] = {}
        self.errors: dict[int, Exception] = {}

    def read(self) -> list[Any]:
        """Return the records in order, about a block of bytes, up to one that is not there; in any thread.

        What lies in the page cache is read first, and the kernel reads the rest meanwhile.
        """
        self.choose()
        self.buffer = np.empty(self.stops[-1], np.uint8).data
        self.sizes = [0] * len(self.spans)
        for fill in (peek, fill_all):
            for path, places in self.files.items():
                if left := [place for place in places if self.sizes[place] < self.spans[place]]:
                    self.fill(path, left, fill)
        records = records_in(self.buffer, self.spans) if self.sizes == self.spans else None
        return records or [self.one(place) for place in range(len(self.spans))]

    def choose(self) -> None:
        """Look up where the records lie."""
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
            with self.opened(path) as file:
                for place in places:
                    part = self.buffer[self.stops[place] : self.stops[place + 1]]
                    try:
                        self.sizes[place] = fill(file, self.begins[place], part)
                    except OSError as error:
                        self.errors[place] = error.with_traceback(None)  # which would keep the buffer alive
        except (OSError, DataLossError) as error:
            self.errors.update((place, copy.copy(error)) for place in places)

    @contextmanager
    def opened(self, path: str) -> Generator[AnyPart]:
        """Open a file that is what it was when its index was made, or fail."""
        index = self.indexes.of(path)
        if index.error:
            raise copy.copy(index.error)
        with opened(path, self.indexes.storage) as file:
            if file.status() != index.stamp:
                raise changed(path)
            yield file

    def one(self, place: int) -> bytes | Failure:
        """Return one record, or in its place the failure that reading the file in order would have given."""
        (path, record), begin, span = self.spots[place], self.begins[place], self.spans[place]
        start = self.stops[place]
        data = self.buffer[start : start + self.sizes[place]]
        if span and (found := records_in(data, [span])):
            return found[0]
        error = self.errors.get(place)
        if error is None:
            error = lost_record(data, path, begin, self.indexes.most) if span else self.lost(path, begin)
        return noted(error, f"TFRecordDataset({path})", record, not span)

    def lost(self, path: str, begin: int) -> Exception:
        """Return what is wrong with a file where its index ends."""
        try:
            with self.opened(path) as file:
                span = damaged_span(file.read_at(begin, HEADER), self.indexes.most)
                left = file.status().size - begin
                return lost_record(file.read_at(begin, min(span, left)), path, begin, self.indexes.most)
        except (OSError, DataLossError) as error:
            return error.with_traceback(None)
