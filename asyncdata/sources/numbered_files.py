"""NumberedFiles: files whose elements can be read by number, several at once, in a thread."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np

from asyncdata.elements.columns import ColumnBatch
from asyncdata.errors import DataLossError, ResumeError
from asyncdata.executors.function_call import noted
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import PHYSICAL
from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.tickets import END, Position, ReplayedTickets, Ticket
from asyncdata.sources.index_storage import explain_compressed
from asyncdata.sources.parsed_files import BEGINNING, FileId, FilePlace, ParsedChunk, ParsedFile, Spot, explain_path
from asyncdata.storage import StorageOptions, without_query

__all__ = ("NumberedFile", "NumberedFiles", "in_order", "runs")

FEW: Final = 64
"""At least this many elements are read at once, if they were requested, as each hop to a thread has a cost."""


class NumberedFiles:
    """Files of one format whose elements have numbers."""

    method: ClassVar[str]
    storage: StorageOptions | None

    def count(self, path: str) -> int:
        """Return how many elements a file has; an error that ends it, or replaces all of it, counts as one."""
        raise NotImplementedError

    def position(self, path: str, number: int) -> Position:
        if number >= self.count(path):
            return END
        return [os.path.basename(without_query(path)), self.size(path), *self.offset(path, number)]

    def offset(self, path: str, number: int) -> tuple[int, int, int]:
        """Return the rest of the position of an element: a number, its byte offset, and how many elements to skip."""
        return number, 0, 0

    def is_broken(self, path: str) -> bool:
        raise NotImplementedError

    def read_file(self, path: str, records: Sequence[int]) -> Sequence[Any]:
        """Return some elements of one file, exceptions in the places of lost ones. Thread-safe."""
        raise NotImplementedError

    def at_once(self) -> int:
        """Return the most elements to read at once."""
        return 4096

    def counts(self, paths: Sequence[str]) -> list[int]:
        """Return how many elements each file has."""
        return [self.count(path) for path in paths]

    async def fetch(self, spots: Sequence[Spot], scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Yield the elements at these spots, with these tickets, in order, up to the first one that does not exist."""
        done, most = 0, max(1, self.at_once())
        while done < len(spots):
            items = await scope.in_thread(partial(self.read, spots[done : done + min(most, max(want.items, FEW))]))
            if not items:
                return
            while items:
                part, items = items[: want.items], items[want.items :]
                failed = Failure in set(map(type, part))
                yield Block(part, ReplayedTickets(tickets, done, done + len(part), END), failed)
                done += len(part)

    def read(self, spots: Sequence[Spot]) -> list[Any]:
        """Return some elements in order, failures in their places, up to one that does not exist. Thread-safe."""
        spots = spots[: next((i for i, (path, record) in enumerate(spots) if record >= self.count(path)), len(spots))]
        found: list[Any] = [None] * len(spots)
        for path in dict.fromkeys(path for path, _ in spots):
            places = [place for place, (other, _) in enumerate(spots) if other == path]
            try:
                elements = self.read_file(path, [spots[place][1] for place in places])
            except (OSError, DataLossError) as error:
                elements = [error.with_traceback(None)] * len(places)
            for place, element in zip(places, elements, strict=True):
                found[place] = element
        return [*map(self.item_of, spots, found)]

    def item_of(self, spot: Spot, found: Any) -> Any:
        """Return an element, or a new failure: a file may be listed twice, and each failure is raised once."""
        if not isinstance(found, Exception):
            return found
        path, record = spot
        error = copy.copy(found)
        explain_compressed(error, path, self.storage)
        explain_path(error, path)
        return noted(error, f"{self.method}({path})", record, self.is_end(path, record))

    def is_end(self, path: str, record: int) -> bool:
        """Return whether a failure replaces more than one element."""
        return True

    def size(self, path: str) -> int:
        """Return the size of a file when it was first looked at, -1 if it could not be read."""
        raise NotImplementedError

    def version(self, path: str) -> str:
        """Return the version of an object that is read from its store; local files have none."""
        return ""

    def chunk(self, path: str, start: int) -> ParsedChunk:
        """Return the next elements of a file; an error that replaces the rest is the last one. Thread-safe."""
        stop = self.chunk_end(path, start)
        try:
            rows: Any = self.read_file(path, range(start, stop))
        except (OSError, DataLossError) as error:
            return ParsedChunk([error.with_traceback(None)], 0, lost=True)
        if type(rows) is np.ndarray:
            rows = ColumnBatch(rows, stop - start, owned=True)
        if isinstance(rows, ColumnBatch):
            return ParsedChunk(rows, 0)
        found = [copy.copy(row) if isinstance(row, Exception) else row for row in rows]
        return ParsedChunk(found, 0, lost=isinstance(found[-1], Exception) and self.is_end(path, stop - 1))

    def chunk_end(self, path: str, start: int) -> int:
        """Return the number after the last of some elements that are read together in order."""
        return min(self.count(path), start + max(1, self.at_once()))


def runs(records: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield where consecutive numbers begin and end."""
    begin = 0
    for place in range(1, len(records) + 1):
        if place == len(records) or records[place] != records[place - 1] + 1:
            yield records[begin], records[place - 1] + 1
            begin = place


async def in_order(node: ParsedFile, files: NumberedFiles, scope: Scope, want: Demand, position: Position) -> Blocks:
    """Yield the elements of a file in order, which are read by their numbers, in a thread."""
    place = BEGINNING if position is None else node.parse_position(position, lambda fields: FilePlace(*fields))
    path, name = node.path, os.path.basename(node.shown)
    place.check_name(node, name)
    count = await scope.in_thread(partial(files.count, path))
    file = FileId(name, files.size(path), files.version(path))
    if file.size >= 0:
        place.check(node, file)
    number, lost = place.record + place.skip, False
    behind = number >= count and files.is_broken(path)  # no state leads behind an error
    if number > count and not behind:
        raise ResumeError(f"{node.label()}: the state is after {number} elements, and the file has {count} now")
    number = count - 1 if behind else number
    while number < count and not lost:
        found = await scope.in_thread(partial(files.chunk, path, number))
        elements, lost = found.elements, found.lost
        if (behind or file.size < 0) and isinstance(elements, list):
            place.check_error(node, elements[0])
        while elements:
            part, elements = elements[: want.items], elements[want.items :]
            yield node.block(file, ParsedChunk(part, 0, lost=lost and not elements), number)
            number += len(part)


@dataclass(frozen=True, eq=False)
class NumberedFile(ParsedFile):
    """The elements of one file, which can be read by number if `files` is set."""

    files: NumberedFiles | None = field(default=None, kw_only=True, repr=False, metadata=PHYSICAL)

    @property
    def numbered(self) -> NumberedFiles | None:
        """What reads the elements by number, if that is possible."""
        return self.files

    @property
    def recognises(self) -> bool:
        return self.numbered is None  # compressed files have no random access

    @property
    def cardinality(self) -> int:
        return UNKNOWN_CARDINALITY if (files := self.numbered) is None else files.count(self.path)

    @property
    def random_access(self) -> bool:
        return self.numbered is not None

    def explain(self, error: Exception, ordinal: int) -> None:
        if self.numbered is not None:
            explain_compressed(error, self.path, self.storage)
        super().explain(error, ordinal)

    def seek(self, count: int) -> Position:
        return super().seek(count) if (files := self.numbered) is None else files.position(self.path, count)

    @property
    def source_fails(self) -> bool:
        return (files := self.numbered) is not None and files.is_broken(self.path)

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        if (files := self.numbered) is None:
            return super().fetch(scope, want, tickets)
        return files.fetch([(self.path, record) for record in tickets], scope, want, tickets)
