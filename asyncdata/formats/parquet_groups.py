"""Row groups of Parquet files: the places of their bytes, and decoding them, without I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, NamedTuple

from asyncdata.elements.borrowed_columns import writable
from asyncdata.errors import DataLossError, PlanError
from asyncdata.formats.arrow_columns import arrow, columns_of
from asyncdata.formats.parquet_filters import filter_columns, matching_groups, matching_rows
from asyncdata.formats.parquet_times import INT96_UNIT, inexact_rows, int96_columns
from asyncdata.formats.sized_file import SizedFile

__all__ = (
    "TAIL",
    "DecodedGroup",
    "PartsOfFile",
    "Selection",
    "as_data_loss",
    "check_columns",
    "checked_tail",
    "metadata_in",
    "places_of",
    "reading_errors",
    "spans",
)

METHOD: Final = "ParquetDataset"

TAIL: Final = 1 << 16
"""Bytes read from the end of a file, enough for most footers."""

MAGIC: Final = b"PAR1"

OLD_WRITER: Final = re.compile(r"parquet-mr(?! version)|parquet-mr version (0|1\.[01]|1\.2\.[0-8])\b")
"""Writers that leave the header of a dictionary out of the size of a column; the oldest do not say their version."""

HEADER: Final = 100
"""Bytes that readers allow for it."""


class PartsOfFile(SizedFile):
    """Some parts of a file, as a file object for pyarrow."""

    def __init__(self, size: int, parts: Sequence[tuple[int, bytes | bytearray]]) -> None:
        super().__init__(size)
        self._parts = [(start, memoryview(data)) for start, data in parts]  # of which a part is no copy

    def read(self, size: int = -1, /) -> Any:
        stop = self.size if size < 0 else min(self.size, self.at + size)
        for start, data in self._parts:
            if start <= self.at and stop <= start + len(data):
                found = data[self.at - start : stop - start]
                self.at = stop
                return found
        raise DataLossError(f"bytes {self.at} to {stop} were requested, which its metadata does not list")


class NoBytesError(Exception):
    """A read that shows that all metadata before it is valid."""


class NoBytes(SizedFile):
    """A file that cannot be read, as a file object for pyarrow."""

    def read(self, size: int = -1, /) -> bytes:
        raise NoBytesError


def check_columns(metadata: Any, size: int, needed: Sequence[str] | None) -> None:
    """Raise if the metadata of a column of some row group is invalid, for a file of so many bytes. Thread-safe."""
    counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    if min(counts, default=0) < 0:
        raise ValueError(f"its metadata gives row group {counts.index(min(counts))} a number of rows below zero")
    check_by_reading(metadata, size, needed)
    for group in [group for group, rows in enumerate(counts) if not rows]:
        if any(chunk.num_values for chunk in chunks_of(metadata, group, places_of(metadata, needed))):
            raise ValueError(f"its metadata says that row group {group} has no rows, but its columns have values")


def check_by_reading(metadata: Any, size: int, needed: Sequence[str] | None) -> None:
    """Raise if pyarrow's reader refuses a column of some row group.

    pyarrow's functions for a single column may end the process then, so none may be called before. Its reader does not:
    it looks at all columns of all row groups, and then requests the bytes.
    """
    pq = arrow("pyarrow.parquet", METHOD)
    try:
        file = pq.ParquetFile(NoBytes(size), metadata=metadata, pre_buffer=True)
        file.read_row_groups(range(metadata.num_row_groups), columns=needed, use_threads=False)
    except NoBytesError:
        pass


def checked_tail(tail: bytes, size: int) -> int:
    """Return the size of a file's footer in bytes, given the file's last bytes; `ValueError` if it is invalid."""
    if len(tail) < 12 or tail[-4:] != MAGIC:
        raise ValueError(f"at byte {max(0, size - 4)} {MAGIC!r} was expected, which a Parquet file ends with")
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > size - len(MAGIC):
        raise ValueError(f"at byte {size - 8} it gives a footer of {length - 8} bytes, more than it has")
    return length


def metadata_in(tail: bytes, size: int) -> Any:
    """Return the metadata in the last bytes of a file."""
    return arrow("pyarrow.parquet", METHOD).read_metadata(PartsOfFile(size, [(size - len(tail), tail)]))


class DecodedGroup(NamedTuple):
    """The columns of a row group, how many rows they have, and the rows that NumPy cannot hold, each with a column."""

    columns: dict[str, Any]
    rows: int
    lost: Mapping[int, str]

    def error(self, row: int, name: str, group: int) -> DataLossError:
        """Return the error in the place of a row that is lost."""
        return DataLossError(
            f"{name}: a time in the column {self.lost[row]!r} of row {row} of row group {group} has a part below a "
            "microsecond, and is stored as INT96, which is read as datetime64[us]"
        )


@dataclass(frozen=True)
class Selection:
    """The selected columns and rows."""

    columns: Sequence[str] | None = None
    filters: Any = None

    def needed(self, metadata: Any, name: str) -> list[str] | None:
        """Return the columns to read: those selected, and those that filters use; `PlanError` for unknown ones."""
        names = metadata.schema.to_arrow_schema().names
        filtered = filter_columns(self.filters)
        needed = [*(self.columns or ()), *(filtered or ())]
        if missing := [column for column in needed if column not in names]:
            raise PlanError(f"{name}: there is no column {missing[0]!r}, the columns are {names}")
        return None if self.columns is None or filtered is None else needed

    def groups(self, metadata: Any, tail: bytes, size: int) -> Sequence[int]:
        """Return the numbers of the row groups that may have selected rows, given the last bytes of the file.

        Thread-safe.
        """
        if self.filters is None:
            return range(metadata.num_row_groups)
        return matching_groups(PartsOfFile(size, [(size - len(tail), tail)]), metadata.num_row_groups, self.filters)

    def decoded(self, metadata: Any, group: int, source: PartsOfFile, needed: list[str] | None) -> DecodedGroup:
        """Return the selected rows of a row group. Thread-safe."""
        table, lost = read_group(metadata, group, source, needed, self.columns)
        if self.filters is not None:
            table, lost = self.matching(table, lost)
        if self.columns is not None:
            if twice := [name for name in self.columns if table.column_names.count(name) > 1]:
                raise ValueError(f"it has two columns {twice[0]!r}")
            table = table.select(self.columns)
        return DecodedGroup(writable(columns_of(table)), table.num_rows, lost)

    def matching(self, table: Any, lost: Mapping[int, str]) -> tuple[Any, Mapping[int, str]]:
        """Return the rows that match, and which of them are lost."""
        found, places = matching_rows(table, self.filters)
        return found, {place: lost[row] for place, row in enumerate(places.tolist() if lost else ()) if row in lost}


def read_group(
    metadata: Any, group: int, source: PartsOfFile, needed: list[str] | None, columns: Sequence[str] | None
) -> tuple[Any, dict[int, str]]:
    """Return the needed columns of a row group, and its rows that have inexact times, in some of the columns."""
    pq = arrow("pyarrow.parquet", METHOD)
    file = pq.ParquetFile(
        source,
        metadata=metadata,
        pre_buffer=False,
        page_checksum_verification=True,
        coerce_int96_timestamp_unit=INT96_UNIT,
    )
    table = file.read_row_group(group, columns=needed, use_threads=False)
    check_rows(metadata, group, needed, table.num_rows)
    old_times = int96_columns(file.schema_arrow, metadata.schema.to_arrow_schema())
    if columns is not None:
        old_times = [name for name in old_times if name in columns]
    if not old_times:
        return table, {}
    exact = pq.ParquetFile(source, metadata=metadata, pre_buffer=False)
    return table, inexact_rows(table, exact.read_row_group(group, columns=old_times, use_threads=False))


def check_rows(metadata: Any, group: int, needed: Sequence[str] | None, found: int) -> None:
    """Raise `ValueError` if a row group has not as many rows as its metadata says. Call `check_columns` first.

    pyarrow reads no more than it says: what else there is shows in the columns that have one value for each row.
    """
    rows, schema = metadata.row_group(group).num_rows, metadata.schema
    plain = [place for place in places_of(metadata, needed) if not schema.column(place).max_repetition_level]
    for count in (found, *(chunk.num_values for chunk in chunks_of(metadata, group, plain))):
        if count != rows:
            raise ValueError(f"it has {count} rows, but its metadata says {rows}")


def reading_errors() -> tuple[type[Exception], ...]:
    """Return the errors that pyarrow raises for what cannot be read."""
    return OSError, ValueError, NotImplementedError, arrow("pyarrow", METHOD).ArrowException


def as_data_loss(error: Exception, name: str, group: int = -1) -> Exception:
    """Return an error of pyarrow as a `DataLossError` that names the file and the row group; others unchanged."""
    if isinstance(
        error, (PlanError, FileNotFoundError, IsADirectoryError, PermissionError, ConnectionError, TimeoutError)
    ):
        return error
    where = f"row group {group} cannot be read" if group >= 0 else "it cannot be read as a Parquet file"
    return DataLossError(f"{name}: {where}: {error}")


def places_of(metadata: Any, needed: Sequence[str] | None) -> Sequence[int]:
    """Return the places of the needed columns, of which a struct has several, in each row group."""
    if needed is None:
        return range(metadata.num_columns)
    names, schema = frozenset(needed), metadata.schema
    # the column of a path may have dots in its name, as pyarrow reads it
    paths = [accumulate(schema.column(place).path.split("."), "{}.{}".format) for place in range(metadata.num_columns)]
    return [place for place, path in enumerate(paths) if not names.isdisjoint(path)]


def chunks_of(metadata: Any, group: int, places: Sequence[int]) -> Iterator[Any]:
    """Yield the metadata of some columns of a row group. Call `check_columns` first."""
    row_group = metadata.row_group(group)
    for place in places:
        yield row_group.column(place)


def spans(metadata: Any, group: int, places: Sequence[int], size: int) -> list[tuple[int, int]]:
    """Return the byte ranges that some columns of a row group need, of a file of `size` bytes; adjacent ones merged.

    Call `check_columns` first.
    """
    found: list[tuple[int, int]] = []
    more = HEADER if OLD_WRITER.match(metadata.created_by or "") else 0
    for chunk in chunks_of(metadata, group, places):
        start = chunk.data_page_offset
        if chunk.dictionary_page_offset is not None and 0 < chunk.dictionary_page_offset < start:
            start = chunk.dictionary_page_offset
        stop = min(start + chunk.total_compressed_size + more, size)
        if found and found[-1][0] <= start <= sum(found[-1]):
            start, stop = found[-1][0], max(stop, sum(found[-1]))
            found.pop()
        found.append((start, stop - start))
    return found
