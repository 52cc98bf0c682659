"""Rows of Parquet files by number: the row group of each row is read, and the last ones are cached."""

from __future__ import annotations

import copy
import threading
from bisect import bisect_right
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, ClassVar, Final, TypeAlias

from asyncdata.elements.columns import ColumnBatch
from asyncdata.elements.isolation import CONSTANT
from asyncdata.formats.parquet_groups import (
    TAIL,
    DecodedGroup,
    PartsOfFile,
    Selection,
    as_data_loss,
    check_columns,
    checked_tail,
    metadata_in,
    places_of,
    reading_errors,
    spans,
)
from asyncdata.sources.files_with_headers import FilesWithHeaders, KnownFile, check_unchanged
from asyncdata.storage import AnyPart, StorageOptions, open_file, without_query
from asyncdata.storage.base import Status

__all__ = ("ParquetFiles",)

CACHED_GROUPS: Final = 8
"""How many decoded row groups are cached."""

Group: TypeAlias = DecodedGroup | Exception


@dataclass
class KnownTable(KnownFile):
    """The metadata of a file, or the error that it cannot be read."""

    metadata: Any = None
    needed: list[str] | None = None
    places: Sequence[int] = ()
    begins: list[int] = field(default_factory=lambda: [0])
    """The number of each row group's first row, and at the end the number of rows."""


class ParquetFiles(FilesWithHeaders[KnownTable]):
    """Files of tables, whose metadata is read once."""

    method: ClassVar = "ParquetDataset"
    known_file = KnownTable

    def __init__(self, columns: Sequence[str] | None, storage: StorageOptions | None = None) -> None:
        super().__init__(storage)
        self.selection = Selection(columns)
        self.groups: OrderedDict[tuple[str, int], Group] = OrderedDict()
        self.lock = threading.Lock()

    def __getstate__(self) -> tuple[Selection, StorageOptions | None]:
        return self.selection, self.storage

    def __setstate__(self, state: tuple[Selection, StorageOptions | None]) -> None:
        self.__init__(state[0].columns, state[1])

    def inspect(self, file: AnyPart, path: str) -> KnownTable:
        status, name = file.status(), without_query(path)
        try:
            return self.table(file, name, status)
        except reading_errors() as error:
            return KnownTable(status, error=as_data_loss(error, name).with_traceback(None))

    def table(self, file: AnyPart, name: str, status: Status) -> KnownTable:
        """Read the metadata at the end of a file."""
        size = min(TAIL, status.size)
        tail = file.read_at(status.size - size, size)
        length = checked_tail(tail, status.size)
        if length > size:
            tail = file.read_at(status.size - length, length)
        metadata = metadata_in(tail, status.size)
        rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        needed = self.selection.needed(metadata, name)
        check_columns(metadata, status.size, needed)
        begins = [0, *accumulate(rows)]
        return KnownTable(status, begins[-1], None, metadata, needed, places_of(metadata, needed), begins)

    def offset(self, path: str, number: int) -> tuple[int, int, int]:
        known = self.of(path)
        if known.error is not None:
            return 0, 0, 0
        group = bisect_right(known.begins, number) - 1
        return known.begins[group], group, number - known.begins[group]

    def read_file(self, path: str, records: Sequence[int]) -> list[Any]:
        known = self.of(path)
        if known.error is not None:
            return [known.error] * len(records)
        found: list[Any] = [None] * len(records)
        with open_file(path, self.storage) as file:
            check_unchanged(path, file, known.status)
            groups = defaultdict[int, list[int]](list)
            for place, record in enumerate(records):
                groups[bisect_right(known.begins, record) - 1].append(place)
            for group, places in sorted(groups.items()):
                decoded = self.group(file, path, known, group)
                rows = [records[place] - known.begins[group] for place in places]
                for place, element in zip(places, elements_at(decoded, rows, without_query(path), group), strict=True):
                    found[place] = element
        return found

    def group(self, file: AnyPart, path: str, known: KnownTable, group: int) -> Group:
        """Return the rows of a row group, or its error."""
        with self.lock:
            if (decoded := self.groups.get((path, group))) is not None:
                self.groups.move_to_end((path, group))
                return decoded
        decoded = self.decoded(file, path, known, group)
        with self.lock:
            self.groups[path, group] = decoded
            if len(self.groups) > CACHED_GROUPS:
                self.groups.popitem(last=False)
        return decoded

    def decoded(self, file: AnyPart, path: str, known: KnownTable, group: int) -> Group:
        """Read a row group."""
        try:
            wanted = spans(known.metadata, group, known.places, known.status.size)
            parts = [(start, file.read_at(start, size)) for start, size in wanted]
            source = PartsOfFile(known.status.size, parts)
            return self.selection.decoded(known.metadata, group, source, known.needed)
        except reading_errors() as error:
            return as_data_loss(error, without_query(path), group).with_traceback(None)

    def is_end(self, path: str, record: int) -> bool:
        return self.is_broken(path)


def elements_at(decoded: Group, rows: Sequence[int], name: str, group: int) -> list[Any]:
    """Return some rows of a row group, which may be changed, as the row group stays cached."""
    if isinstance(decoded, Exception):
        return [decoded] * len(rows)
    found = ColumnBatch(decoded.columns, decoded.rows).at(rows).elements()
    return [
        decoded.error(row, name, group) if row in decoded.lost else {key: own(part) for key, part in element.items()}
        for row, element in zip(rows, found, strict=True)
    ]


def own(value: Any) -> Any:
    """Return a value that may be changed."""
    return value if issubclass(type(value), CONSTANT) else copy.deepcopy(value)
