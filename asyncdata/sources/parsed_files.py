"""ParsedFile opens a file, lets a parser split it into elements, and closes it; its positions and errors."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cached_property
from glob import has_magic
from itertools import chain
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias, cast, final

import numpy as np
import numpy.typing as npt

from asyncdata.elements.columns import ColumnBatch
from asyncdata.errors import DataLossError, ResumeError
from asyncdata.executors.function_call import noted
from asyncdata.executors.scope import Scope
from asyncdata.formats.compression import LARGEST_WINDOW
from asyncdata.graph.node import ELSEWHERE, PHYSICAL, Node, picked
from asyncdata.graph.stages import Produce
from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.tickets import END, Position, Ticket, Tickets
from asyncdata.sources.file_contents import FileContents
from asyncdata.sources.file_list_digest import stamps
from asyncdata.storage import BLOCK_BYTES, Buffer, Entry, StorageOptions, is_local, store_for, without_query

__all__ = (
    "BEGINNING",
    "FileCatalog",
    "FileId",
    "FilePlace",
    "ParsedChunk",
    "ParsedFile",
    "Parser",
    "RandomAccessFiles",
    "Spot",
    "explain_path",
    "parsed",
)


class Parser(Protocol):
    """Turns the bytes of a file into elements, without I/O."""

    @property
    def offset(self) -> int:
        """A byte offset at which reading can start, `skip` elements before the next one."""
        ...

    @property
    def skip(self) -> int:
        """How many elements between `offset` and the next one have been returned."""
        ...

    @property
    def lost(self) -> bool:
        """Whether the last element returned is an error that replaces the rest of the file."""
        ...

    def jump(self, offset: int) -> None:
        """Continue with bytes from `offset`."""
        ...

    def feed(self, data: Buffer) -> None:
        """Take the file's next bytes, which must not change until `parse` has returned nothing."""
        ...

    def finish(self) -> None:
        """Mark the end of the data."""
        ...

    def parse(self, limit: int) -> list[Any] | ColumnBatch:
        """Return at most `limit` elements, errors in the places of lost ones; none if more data is needed."""
        ...


@dataclass(frozen=True)
class ParsedChunk:
    """Consecutive elements, the position before them, and the byte offset after them, -1 if it is unknown."""

    elements: list[Any] | ColumnBatch
    begin: int
    skip: int = 0
    end: int = -1
    lost: bool = False
    """Whether the last one is an error that replaces the rest of the file."""


@dataclass(frozen=True, eq=False)
class ParsedFile(Node):
    """The elements of one file. A corrupt or missing element is a failure in its place."""

    method: ClassVar[str]
    numbered_anywhere: ClassVar[bool] = False
    """Whether `files` reads files in stores too, or leaves them to be read in order."""
    path: str = field(metadata=ELSEWHERE)
    compression: str | None = field(default=None, repr=False)
    """None to detect it from the first bytes, "" for none."""
    block_bytes: int = field(default=BLOCK_BYTES, metadata=PHYSICAL)
    storage: StorageOptions | None = field(default=None, kw_only=True, repr=False, metadata=PHYSICAL)

    @property
    def recognises(self) -> bool:
        """Whether compression is detected from the first bytes, unless it is given."""
        return True

    @property
    def shown(self) -> str:
        """The path or URL for messages and states."""
        return without_query(self.path)

    def parser(self, compressed: bool) -> Parser:
        """Return a parser for the file; its messages say if the file is `compressed`."""
        raise NotImplementedError

    def is_plain(self, head: bytes) -> bool:
        """Return whether the first bytes prove that this is an uncompressed file of this format."""
        return False

    def direct_records(self, stream: object, parser: Parser, want: Demand) -> Iterator[ParsedChunk]:
        """Yield elements that can be read faster than by the parser."""
        return iter(())

    def direct(self, contents: Any, parser: Parser, want: Demand) -> Iterator[ParsedChunk]:
        """Yield these elements, counted as read."""
        for found in self.direct_records(contents.plain, parser, want):
            contents.took(found.end - found.begin)
            yield found

    def stage(self) -> Produce:
        return Produce(self.blocks)

    def label(self) -> str:
        return f"{self.method}({self.shown})"

    @property
    def identity(self) -> str:
        """The label with the base name, as files may be moved to another folder."""
        return f"{self.method}({os.path.basename(self.shown)})"

    @property
    def contents(self) -> tuple[Any, ...]:
        """All fields, and the file's version: another folder or modification time is another file."""
        return (*super().contents, stamps([self.shown]))

    def address(self, places: Sequence[int]) -> Sequence[Ticket]:
        return places

    @property
    def reads_elsewhere(self) -> bool:
        return not is_local(self.path)

    @property
    def resume_note(self) -> str | None:
        return f"{self.label()} is decompressed from its beginning" if self.compression else None

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        return picked(self, scope, want, tickets)

    async def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        """Yield the elements that have been read, up to the demand."""
        place = BEGINNING if position is None else self.parse_position(position, lambda fields: FilePlace(*fields))
        name = os.path.basename(self.shown)
        place.check_name(self, name)
        if place.at_end and not is_local(self.path):  # known without a request
            if (error := self.wrong_count(place.record)) is not None:
                file = FileId(name, place.size, place.version)
                yield self.block(file, ParsedChunk([error], place.offset, lost=True), place.record)
            return
        contents = self.contents_of(scope, place.offset)
        async with aclosing(contents):
            entry = await begun(contents)
            if isinstance(entry, Exception):
                place.check_error(self, entry)
                found = ParsedChunk([entry], place.offset, place.skip, lost=True)
                yield self.block(FileId(name, place.size, place.version), found, place.record + place.skip)
                return
            file = FileId(name, entry.size, entry.version)
            place.check(self, file)
            if self.compression is None and self.recognises and not place.offset:
                await contents.recognise(self.is_plain)
            ordinal, skip, lost = place.record, place.skip, False
            async with aclosing(self.parts(contents, entry, want, place.offset)) as source:
                async for found in source:
                    block = self.block(file, found, ordinal, contents.compressed)
                    ordinal += len(block)
                    lost = found.lost
                    if len(part := block.after_skip(min(skip, len(block) - found.lost))):
                        yield part
                    skip = max(0, skip - len(block))
            if not lost and (error := self.wrong_count(ordinal)) is not None:
                yield self.block(file, ParsedChunk([error], max(0, entry.size), lost=True), ordinal)

    def wrong_count(self, count: int) -> DataLossError | None:
        """Return the error of a file that ends after `count` elements, if it is known to have others."""
        return None

    def block(self, file: FileId, found: ParsedChunk, ordinal: int, compressed: bool = False) -> Block:
        """Return a chunk as a block, with errors as failures; `ordinal` is the number of the first element."""
        items = found.elements
        begin = -1 if compressed else found.begin
        if isinstance(items, ColumnBatch):
            return Block.of_columns([items], FileTickets(file, ordinal, len(items), begin, found.skip, found.end))
        failed = any(issubclass(kind, Exception) for kind in set(map(type, items)))
        if failed:
            for place, item in enumerate(items):
                if isinstance(item, Exception):
                    self.explain(item, ordinal + place)
                    lost = found.lost and place == len(items) - 1
                    items[place] = noted(item, self.label(), ordinal + place, lost)
        tickets = FileTickets(file, ordinal, len(items), begin, found.skip, -1 if failed else found.end, found.lost)
        return Block(items, tickets, failed)

    def explain(self, error: Exception, ordinal: int) -> None:
        """Add a note to the error of an element that says what is probably wrong."""
        explain_path(error, self.shown)

    def contents_of(self, scope: Scope, offset: int) -> Any:
        """Return the file's bytes from `offset` on, which `parts` reads; the caller closes them."""
        store, path = store_for(self.path, self.storage)
        stream = store.stream(path, self.block_bytes, offset, scope)
        most: int = getattr(self, "max_record_bytes", LARGEST_WINDOW)
        return FileContents(stream, self.shown, self.compression, scope, most)

    async def begin_at(self, parser: Any, offset: int) -> None:
        """Prepare a parser for data from an offset."""
        parser.jump(offset)

    async def parts(self, contents: Any, entry: Entry, want: Demand, offset: int) -> AsyncGenerator[ParsedChunk, None]:
        """Yield elements as they are found, and at the end the error that cuts the file short."""
        parser = self.parser(contents.compressed)
        try:
            await self.begin_at(parser, offset)
        except (OSError, DataLossError) as error:
            yield ParsedChunk([error], parser.offset, parser.skip, lost=True)
            return
        async with aclosing(self.parse_all(parser, contents, want)) as source:
            async for found in source:
                yield found

    async def parse_all(self, parser: Parser, contents: Any, want: Demand) -> AsyncGenerator[ParsedChunk, None]:
        """Yield what a parser finds in the contents."""
        try:
            async for chunk in contents:
                parser.feed(chunk)
                idle = True
                for found in chain(parsed(parser, want), self.direct(contents, parser, want)):
                    idle = False
                    yield found
                if parser.lost:
                    return
                if idle:
                    await asyncio.sleep(0)  # a cancelled pipeline ends here
        except (OSError, DataLossError) as error:
            yield ParsedChunk([error], parser.offset, parser.skip, lost=True)
            return
        parser.finish()
        for found in parsed(parser, want):
            yield found


def parsed(parser: Parser, want: Demand) -> Iterator[ParsedChunk]:
    """Yield the elements that the parser can return now."""
    while True:
        begin, skip = parser.offset, parser.skip
        elements = parser.parse(want.items)
        if not elements:
            return
        yield ParsedChunk(elements, begin, skip, -1 if parser.skip else parser.offset, parser.lost)


async def begun(contents: Any) -> Entry | Exception:
    """Open the contents; return their entry or the error."""
    try:
        return await contents.begin()
    except (OSError, DataLossError) as error:
        return error


class FileId(NamedTuple):
    """The part of a position that identifies a file: its base name, as the folder may change, its size and version.

    Only objects in object stores and on web servers have a version.
    """

    name: str = ""
    size: int = -1
    version: str = ""

    def position(self, record: int, offset: int, skip: int) -> Position:
        """Return the position of a record in the file."""
        place = [self.name, self.size, record, offset, skip]
        return [*place, self.version] if self.version else place


class FilePlace(NamedTuple):
    """A position in a file: `skip` elements after the one at `offset`, which is number `record` of the file."""

    name: str = ""
    size: int = -1
    record: int = 0
    offset: int = 0
    skip: int = 0
    version: str = ""

    @property
    def at_end(self) -> bool:
        """Whether it is the end of the file."""
        return 0 <= self.size == self.offset and not self.skip

    def check_name(self, node: ParsedFile, name: str) -> None:
        """Raise unless the file has the name of the one that the state was made with."""
        if self is not BEGINNING and self.name != name:
            raise ResumeError(f"{node.label()}: the state was in {self.name!r} there; the list of files has changed")

    def check(self, node: ParsedFile, file: FileId) -> None:
        """Raise unless the file is the one that the state was made with."""
        if self is BEGINNING or not (self.record or self.offset or self.skip or is_local(node.path)):
            return  # nothing was read, so the size may have been unknown
        if self.size != file.size:
            raise ResumeError(
                f"{node.label()}: the file had {self.size} bytes when the state was made, now {file.size}"
            )
        if self.version and file.version and self.version != file.version:
            raise ResumeError(f"{node.label()}: the file was replaced by another one since the state was made")

    def check_error(self, node: ParsedFile, error: Exception) -> None:
        """Raise `ResumeError` if an error shows that the file is not the one that the state was made with."""
        if self.record or self.offset or self.skip:
            if isinstance(error, FileNotFoundError):
                raise ResumeError(f"{node.label()}: the file no longer exists: {error}") from error
            if isinstance(error, DataLossError):
                raise ResumeError(f"{node.label()}: {error}") from error


def explain_path(error: Exception, path: str) -> None:
    """Add a note to the error of a path that says what is probably wrong with it."""
    if isinstance(error, FileNotFoundError) and has_magic(path):
        error.add_note("the path looks like a pattern: Dataset.list_files gives the files that match")
    elif isinstance(error, FileNotFoundError) and BRACES.search(path):
        error.add_note("braces stand for themselves: give a list of paths, which the package braceexpand makes")
    elif isinstance(error, IsADirectoryError):
        error.add_note(f"give the files in it: Dataset.list_files({path.rstrip('/') + '/*'!r})")


BRACES: Final = re.compile(r"\{[^{}]*(?:\.\.|,)[^{}]*\}")
"""A pattern of shells and of the package webdataset, such as `{000..127}` and `{a,b}`."""

BEGINNING: Final = FilePlace()
"""The position of a run without a state."""


@final
class FileTickets(Tickets):
    """The tickets of elements `record` and following of a file; `skip` elements are between `begin` and the first.

    `begin` and `end` (of the last one) are byte offsets, -1 if unknown. Nothing follows the last element if the rest of
    the file is `lost`.
    """

    __slots__ = ("begin", "count", "end", "file", "lost", "record", "skip")

    def __init__(
        self, file: FileId, record: int, count: int, begin: int, skip: int, end: int, lost: bool = False
    ) -> None:
        self.file = file
        self.record = record
        self.count = count
        self.begin = begin
        self.skip = skip
        self.end = end
        self.lost = lost

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return self.record + index

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.record, self.record + self.count))

    def in_columns(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        return np.arange(self.record + start, self.record + stop)

    def run_from(self, ordinal: int) -> bool:
        return self.record == ordinal

    def at(self, count: int) -> Position:
        if count == self.count and self.lost:
            return END
        if self.begin < 0:  # compressed: it can only be read from its beginning
            return self.file.position(0, 0, self.record + count)
        if count == self.count and self.end >= 0:
            return self.file.position(self.record + count, self.end, 0)
        return self.file.position(self.record - self.skip, self.begin, self.skip + count)


Spot: TypeAlias = tuple[str, int]
"""The file of an element, and its number in the file."""


class RandomAccessFiles(Protocol):
    """Files whose elements can be read by number."""

    def counts(self, paths: Sequence[str]) -> list[int]:
        """Return how many elements each file has."""
        ...

    def position(self, path: str, number: int) -> Position:
        """Return the position of an element, as sequential reading gives it; the end of the file after the last."""
        ...

    def is_broken(self, path: str) -> bool:
        """Return whether an error ends a file, or replaces all of it."""
        ...

    def fetch(self, spots: Sequence[Spot], scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Yield the elements at these spots, with these tickets, in order, up to the first one that does not exist."""
        ...


@dataclass(frozen=True)
class FileCatalog:
    """The elements of several files by number, one file after the other."""

    paths: Sequence[str]
    library: RandomAccessFiles

    @cached_property
    def begins(self) -> npt.NDArray[np.int64]:
        """The number of each file's first element, and at the end the number of elements."""
        return np.cumsum([0, *self.library.counts(self.paths)], dtype=np.int64)

    def __len__(self) -> int:
        return int(self.begins[-1])

    def address(self, places: Sequence[int]) -> Sequence[Ticket]:
        """Return the tickets of the elements at these indices."""
        files = np.searchsorted(self.begins, places, side="right") - 1
        return list(zip(files.tolist(), (np.asarray(places) - self.begins[files]).tolist(), strict=True))

    def seek(self, count: int) -> tuple[int, Position]:
        """Return the file of element `count`, and its position there."""
        if count >= len(self):
            return len(self.paths), None
        file, number = cast("Spot", self.address([count])[0])
        return int(file), self.library.position(self.paths[int(file)], number)

    @property
    def is_broken(self) -> bool:
        """Whether an error ends one of the files, or replaces all of it."""
        return any(map(self.library.is_broken, self.paths))

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Yield the elements with these tickets, in this order."""
        spots = [(self.paths[file], record) for file, record in cast("Sequence[tuple[int, int]]", tickets)]
        return self.library.fetch(spots, scope, want, tickets)
