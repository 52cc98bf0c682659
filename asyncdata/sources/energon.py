"""Archives of Energon as a source: their index is beside them, and some samples may be left out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from asyncdata.errors import DataLossError
from asyncdata.formats.offset_index import Marks, OffsetIndex
from asyncdata.formats.sample_decoders import Decoder, Decoders
from asyncdata.formats.tar import BLOCK
from asyncdata.formats.webdataset import KEY, SampleParser
from asyncdata.sources.webdataset import SampleFile, SampleFiles
from asyncdata.storage import AnyPart, StorageOptions, open_file

__all__ = ("EnergonFile", "EnergonFiles", "SomeSampleParser")

NEXT: Final = 64 * BLOCK
"""So many bytes of the next sample are read at once, which show that it is another one."""


class SomeSampleParser(SampleParser):
    """Leaves out the samples with some keys."""

    excluded: frozenset[str] = frozenset()

    def parse(self, limit: int) -> list[Any]:
        if not self.excluded:
            return super().parse(limit)
        kept: list[Any] = []
        while len(kept) < limit and (found := super().parse(1)):
            if self.lost or self.key not in self.excluded:
                kept += found
        return kept


class EnergonFiles(SampleFiles):
    """Archives of samples, with the index that `energon prepare` has written; one that does not fit is made anew."""

    method: ClassVar = "EnergonDataset"

    def __init__(
        self,
        decoders: Mapping[str, Decoder] | None,
        most: int,
        excluded: Mapping[str, frozenset[str]],
        storage: StorageOptions | None = None,
    ) -> None:
        super().__init__(decoders, most, storage)
        self.excluded = excluded
        self.kept: dict[str, Sequence[int]] = {}
        """Which samples of an archive are left, where some are left out."""

    def read_or_make_index(self, path: str) -> OffsetIndex | OSError:
        index: OffsetIndex | OSError | None = None
        with suppress(OSError), open_file(path, self.storage) as file:
            status = file.status()
            if (begins := self.stored_begins(path, status.size)) is not None:
                end = file.read_at(int(begins[-1]), min(BLOCK, status.size - int(begins[-1])))
                if not any(end):  # else there are samples after those in the index
                    index = OffsetIndex(Marks(self.kind, self.most, *status), begins[:-1], lost=False)
        index = super().read_or_make_index(path) if index is None else index
        if path in self.excluded and isinstance(index, OffsetIndex):
            self.kept[path] = self.rows_left(path, index)
        return index

    def stored_begins(self, path: str, size: int) -> npt.NDArray[np.int64] | None:
        """Return where samples begin, and where the last one ends; `None` without an index of a file of this size."""
        try:
            with open_file(f"{path}.idx", self.storage) as file:
                found = np.frombuffer(file.read_at(0, file.status().size), "<u8")
        except (OSError, ValueError):
            return None
        in_file = len(found) > 0 and not np.any(found % BLOCK) and int(found[-1]) <= size
        return found.astype(np.int64) if in_file and bool(np.all(found[:-1] < found[1:])) else None

    def rows_left(self, path: str, index: OffsetIndex) -> Sequence[int]:
        """Return which samples are not left out: their keys are read."""
        left: list[int] = []
        with open_file(path, self.storage) as file:
            for row in range(index.count):
                parser = SampleParser(path, self.most, Decoders(None))
                begin, span = index.span(row)
                parser.jump(begin)
                parser.feed(file.read_at(begin, span) + bytes(2 * BLOCK))
                found = parser.parse(1)
                if not (found and isinstance(found[0], dict) and found[0][KEY] in self.excluded[path]):
                    left.append(row)
        return left

    def read_one(self, file: AnyPart, index: OffsetIndex, name: str, record: int) -> Any:
        begin, span = index.span(record)
        if index.lost or record == index.count - 1 or span > self.most:
            return super().read_one(file, index, name, record)
        parser = SampleParser(name, self.most, Decoders(self.decoders))
        parser.jump(begin)
        at, found = begin, list[Any]()
        while not found and (some := min(NEXT if at > begin else span + NEXT, index.marks.size - at)) > 0:
            parser.feed(file.read_at(at, some))
            at, found = at + some, parser.parse(1)
        if not found or (parser.offset != begin + span and not parser.lost):
            raise DataLossError(f"{name}: its index does not fit at byte {begin}: run energon prepare --tar-index-only")
        return found[0]

    def row(self, path: str, number: int) -> int:
        """Return which sample of its archive the one with a number is."""
        return self.kept[path][number] if path in self.kept else number

    def left_before(self, paths: Sequence[str], sample: int) -> int:
        """Return how many of the first samples of some archives are not left out."""
        found = 0
        for path in paths:
            size = super().count(path)
            here = max(0, min(size, sample))
            found += bisect_left(self.kept[path], here) if path in self.kept else here
            sample -= size
        return found

    def stored(self, paths: Sequence[str]) -> int:
        """Return how many samples are in some archives, with those that are left out."""
        return sum(super(EnergonFiles, self).count(path) for path in paths)

    def count(self, path: str) -> int:
        count = super().count(path)
        return len(self.kept[path]) if path in self.kept else count

    def offset(self, path: str, number: int) -> tuple[int, int, int]:
        index = self.of(path)
        return (number, index.span(self.row(path, number))[0], 0) if isinstance(index, OffsetIndex) else (0, 0, 0)

    def read_file(self, path: str, records: Sequence[int]) -> list[Any]:
        self.of(path)
        return super().read_file(path, [self.row(path, record) for record in records])

    def is_end(self, path: str, record: int) -> bool:
        return super().is_end(path, self.row(path, record))


@dataclass(frozen=True, eq=False)
class EnergonFile(SampleFile):
    """The samples in one archive that are not left out."""

    method: ClassVar[str] = "EnergonDataset"

    excluded: frozenset[str] = field(default=frozenset(), kw_only=True, repr=False)

    def parser(self, compressed: bool) -> SampleParser:
        parser = SomeSampleParser(self.shown, self.max_record_bytes, Decoders(self.decoders), compressed=compressed)
        parser.excluded = self.excluded
        return parser
