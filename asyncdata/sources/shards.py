"""Shards of MDS and LitData as a source of samples: read in order, or any sample by its number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from struct import unpack
from typing import Any, ClassVar, Final

from asyncdata.errors import DataLossError
from asyncdata.executors.scope import Scope
from asyncdata.formats.litdata import LitFormat
from asyncdata.formats.litdata_groups import Groups, groups_of
from asyncdata.formats.shards import BEGIN_BYTES, Layout, ShardFormat, ShardHeader, ShardParser
from asyncdata.graph.node import PHYSICAL
from asyncdata.runtime.block import Blocks, Demand
from asyncdata.runtime.tickets import Position
from asyncdata.sources.files_with_headers import FilesWithHeaders, KnownFile, check_unchanged
from asyncdata.sources.numbered_files import NumberedFile, in_order
from asyncdata.storage import AnyPart, StorageOptions, is_local_or_cached, open_file, read_head, without_query

__all__ = ("LitFile", "LitFiles", "MdsFile", "MdsFiles", "ShardFile", "ShardFiles")


OFFSETS: Final = 64
"""At most so many offsets for each sample are read at once: to read one of them takes as long."""


@dataclass
class KnownShard(KnownFile):
    """What the header of a shard says. Its offsets are read again when they are needed, as they may be many."""

    layout: Layout | None = None


class ShardFiles(FilesWithHeaders[KnownShard]):
    """Shards of one format, whose headers are read once."""

    known_file = KnownShard

    def __init__(self, form: ShardFormat, storage: StorageOptions | None = None) -> None:
        super().__init__(storage)
        self.form = form

    def inspect(self, file: AnyPart, path: str) -> KnownShard:
        """Read the header of a shard."""
        known = KnownShard(file.status())
        try:
            header = self.header(file, path, known.status.size)
            known.layout = header.layout
            known.records = header.complete(known.status.size)
            header.check_size(known.status.size)
        except ValueError as error:
            known.error = DataLossError(f"{without_query(path)}: {error}")
        return known

    def header(self, file: AnyPart, path: str, size: int) -> ShardHeader:
        """Return the header of a shard; `ValueError` if it is damaged."""
        begin = file.read_at(0, BEGIN_BYTES)
        whole = self.form.header_size(begin) if len(begin) == BEGIN_BYTES else BEGIN_BYTES
        if size < whole:
            raise ValueError(f"it ends at byte {size}, where a header of {whole} bytes was expected")
        return self.form.header(path, file.read_at(0, whole))

    def offset(self, path: str, number: int) -> tuple[int, int, int]:
        if self.of(path).layout is None:
            return 0, 0, 0
        with open_file(path, self.storage) as file:
            return number, unpack("<I", file.read_at(4 + 4 * number, 4))[0], 0

    def is_end(self, path: str, record: int) -> bool:
        return record >= self.of(path).records

    def read_file(self, path: str, records: Sequence[int]) -> list[Any]:
        known, name = self.of(path), without_query(path)
        layout = known.layout
        if layout is None:
            return [known.error] * len(records)
        with open_file(path, self.storage) as file:
            check_unchanged(path, file, self.of(path).status)
            spans = self.spans(file, [record for record in records if record < known.records], known.records)
            return [
                known.error if record >= known.records else self.sample_at(file, layout, name, *next(spans))
                for record in records
            ]

    def spans(self, file: AnyPart, records: Sequence[int], count: int) -> Iterator[tuple[int, int]]:
        """Yield where samples begin and end. Offsets of a short header are read at once."""
        if count > OFFSETS * len(records):
            for record in records:
                yield unpack("<II", file.read_at(4 + 4 * record, 8))
        elif records:
            offsets = unpack(f"<{count + 1}I", file.read_at(4, 4 * (count + 1)))
            yield from [(offsets[record], offsets[record + 1]) for record in records]

    def sample_at(self, file: AnyPart, layout: Layout, name: str, begin: int, end: int) -> Any:
        """Read a sample, or the error in its place."""
        data = memoryview(file.read_at(begin, end - begin))
        return layout.sample(name, data, begin, 0, len(data))


@dataclass(frozen=True, eq=False)
class ShardFile(NumberedFile):
    """The samples of one shard."""

    form: ShardFormat = field(kw_only=True, repr=False, metadata=PHYSICAL)

    @property
    def recognises(self) -> bool:
        return False  # the name says how it is compressed, and any number may come first

    def parser(self, compressed: bool) -> ShardParser:
        return ShardParser(self.path, self.shown, self.form)

    async def begin_at(self, parser: ShardParser, offset: int) -> None:
        if offset:
            begin = await read_head(self.path, BEGIN_BYTES, self.storage)
            try:
                parser.start(await read_head(self.path, self.form.header_size(begin), self.storage))
            except ValueError as error:
                raise DataLossError(f"{self.shown}: {error}") from None
        parser.jump(offset)


class MdsFiles(ShardFiles):
    """Shards of MDS."""

    method: ClassVar = "MdsDataset"


@dataclass(frozen=True, eq=False)
class MdsFile(ShardFile):
    """The samples of a shard of MDS."""

    method: ClassVar[str] = "MdsDataset"


class LitFiles(ShardFiles):
    """Chunks of LitData, in which samples are stored one after another, or in groups."""

    method: ClassVar = "LitDataset"

    def __init__(self, form: LitFormat, storage: StorageOptions | None = None) -> None:
        super().__init__(form, storage)
        self.lit = form
        self.groups: dict[str, Groups] = {}

    def inspect(self, file: AnyPart, path: str) -> KnownShard:
        known = KnownShard(file.status())
        try:
            groups = groups_of(file.read_at, known.status.size, self.lit.layouts[path], self.lit.samples[path])
            if groups is None:
                return super().inspect(file, path)
            self.groups[path] = groups
            known.records = groups.samples
        except ValueError as error:
            known.error = DataLossError(f"{without_query(path)}: {error}")
        return known

    def in_groups(self, path: str) -> bool:
        """Return whether the samples of a chunk are stored in groups."""
        return self.of(path).count > 0 and path in self.groups

    def offset(self, path: str, number: int) -> tuple[int, int, int]:
        return (number, 0, 0) if self.in_groups(path) else super().offset(path, number)

    def read_file(self, path: str, records: Sequence[int]) -> list[Any]:
        if not self.in_groups(path):
            return super().read_file(path, records)
        with open_file(path, self.storage) as file:
            check_unchanged(path, file, self.of(path).status)
            return self.groups[path].read(file.read_at, self.size(path), without_query(path), records)

    def chunk_end(self, path: str, start: int) -> int:
        return self.groups[path].end(start)


@dataclass(frozen=True, eq=False)
class LitFile(ShardFile):
    """The samples of a chunk of LitData."""

    method: ClassVar[str] = "LitDataset"

    known: LitFiles = field(kw_only=True, repr=False, metadata=PHYSICAL)

    async def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        """Yield the samples in order; those in groups are read by their numbers."""
        here = not self.compression and is_local_or_cached(self.path, self.storage)
        grouped = here and await scope.in_thread(partial(self.known.in_groups, self.path))
        found = in_order(self, self.known, scope, want, position) if grouped else super().blocks(scope, want, position)
        async with aclosing(found) as source:
            async for block in source:
                yield block
