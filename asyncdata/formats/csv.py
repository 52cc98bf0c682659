"""CsvParser: a strict parser for RFC 4180, which turns bytes into rows of typed fields, without I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from asyncdata.elements.columns import ColumnBatch
from asyncdata.errors import DataLossError
from asyncdata.formats.csv_vectorized import Grid, plain_grid, quoted_grid
from asyncdata.formats.record_limits import MAX_RECORD_BYTES, offset_in, record_too_long
from asyncdata.formats.window_parser import WindowParser

__all__ = ("Column", "CsvParser", "Dialect", "Strings", "Table")

Fields: TypeAlias = "list[bytes] | DataLossError"
"""The fields of one record, or its error."""

WINDOW: Final = 1 << 16
"""Bytes that are split at once: a few milliseconds' work, whatever the size of the data."""

LINE_END: Final = re.compile(rb"\r\n|\n|\r")

GRID_BYTES: Final = 1 << 20
"""Longer windows have long records, for which a grid would need eight times the memory."""


@dataclass(frozen=True)
class Dialect:
    """The delimiter, whether quotes are special, and whether the first record is a header."""

    delimiter: bytes = b","
    quotes: bool = True
    header: bool = False


@dataclass(frozen=True)
class Column:
    """One field of each record: its index, its dtype, and its default if it is missing.

    It is required if the default is `None`.
    """

    index: int
    dtype: np.dtype[Any]
    default: Any = None

    def converted(self, fields: Sequence[bytes], missing: frozenset[bytes]) -> NDArray[Any]:
        """Return the values of this field of many records; `ValueError` if one is invalid."""
        if not any(word in fields for word in missing):
            return self.values(fields)
        if self.default is None:
            raise ValueError("it is required and missing")
        there = np.array([field not in missing for field in fields])
        values = np.empty(len(fields), self.dtype)
        values[:] = self.default
        values[there] = self.values([field for field in fields if field not in missing])
        return values

    def values(self, fields: Sequence[bytes]) -> NDArray[Any]:
        """Return the values of fields that are not missing."""
        if self.dtype == object:
            strings = np.empty(len(fields), object)
            strings[:] = fields
            return strings
        if b"_" in b"".join(fields):  # Python would allow it between digits
            raise ValueError(self.refusal(fields))
        try:
            return self.array(fields)
        except (ValueError, OverflowError):
            raise ValueError(self.refusal(fields)) from None

    def array(self, fields: Sequence[bytes]) -> NDArray[Any]:
        if self.dtype.kind == "f":
            with np.errstate(over="ignore"):
                return np.fromiter(map(float, fields), np.float64, len(fields)).astype(self.dtype, copy=False)
        numbers = np.fromiter(map(int, fields), np.int64, len(fields))
        narrow = numbers.astype(self.dtype, copy=False)
        if narrow is not numbers and not np.array_equal(narrow, numbers):
            raise OverflowError
        return narrow

    def refusal(self, fields: Sequence[bytes]) -> str:
        return f"it is not a valid {self.dtype.name}: {fields[0]!r:.60}"


@dataclass(frozen=True)
class Table:
    """The selected fields of a record, and how many fields it may have.

    `fits` returns whether a record may have a number of fields; `expected` describes the numbers in words.
    """

    columns: tuple[Column, ...]
    missing: frozenset[bytes]
    fits: Callable[[int], bool]
    expected: str

    def read(self, grid: Grid) -> ColumnBatch | None:
        """Return the values of records with the same number of fields, `None` if one of them has an error."""
        if not self.fits(grid.width):
            return None
        try:
            fields, width = grid.fields, grid.width
            columns = [one.converted(fields[one.index :: width], self.missing) for one in self.columns]
            return ColumnBatch(tuple(columns), len(columns[0]))
        except ValueError:
            return None

    def elements(self, name: str, rows: Sequence[Fields]) -> list[Any]:
        """Return the values of each record as a tuple, errors in their places."""
        if set(map(type, rows)) == {list}:
            good: Any = rows
            if all(map(self.fits, set(map(len, good)))):
                fields = list(zip(*good, strict=False))
                try:
                    return list(
                        zip(*[one.converted(fields[one.index], self.missing) for one in self.columns], strict=True)
                    )
                except ValueError:
                    pass  # one by one, to find the record
        return [self.element(name, row) for row in rows]

    def element(self, name: str, row: Fields) -> Any:
        """Return the values of one record, or its error."""
        if isinstance(row, DataLossError):
            return row
        if not self.fits(len(row)):
            return DataLossError(f"{name}: a record of {self.expected} fields was expected, this one has {len(row)}")
        values: list[Any] = []
        for one in self.columns:
            try:
                values.extend(one.converted(row[one.index : one.index + 1], self.missing))
            except ValueError as error:
                return DataLossError(f"{name}: field {one.index} of the record: {error}")
        return tuple(values)


@dataclass(frozen=True)
class Strings(Table):
    """Any number of fields as strings: for a header."""

    columns: tuple[Column, ...] = ()
    missing: frozenset[bytes] = frozenset()
    fits: Callable[[int], bool] = bool
    expected: str = "any"

    def read(self, grid: Grid) -> None:
        return None

    def elements(self, name: str, rows: Sequence[Fields]) -> list[Any]:
        return [*rows]


class CsvParser(WindowParser):
    r"""Turns the bytes of a file into tuples of values, with errors in the places of invalid records.

    A record ends at `\n`, `\r\n` or `\r` outside quotes; a quoted field may contain anything, with quotes doubled.
    A record of more than `most` bytes is an error, and the last element.

    >>> column = Column(1, np.dtype(np.int64))
    >>> parser = CsvParser("a.csv", Dialect(), Table((column,), frozenset({b""}), lambda count: count == 2, "2"))
    >>> parser.feed(b'one,1\n"tw\no",2\nthree,x\n4')
    >>> parser.parse(limit=2)
    [(np.int64(1),), (np.int64(2),)]
    >>> parser.finish()
    >>> parser.parse(limit=2)
    [DataLossError("a.csv: field 1 of the record: it is not a valid int64: b'x'")]
    """

    def __init__(
        self, name: str, dialect: Dialect, table: Table, most: int = MAX_RECORD_BYTES, *, compressed: bool = False
    ) -> None:
        super().__init__()
        self._name = name
        self._most = most
        self._table = table
        self._splitter = Splitter(name, dialect, most, offset_in(compressed))
        self._header = dialect.header
        self._skip_header = dialect.header
        self._enough = 0  # the size of `_rest` from which searching for its end again is worthwhile

    def jump(self, offset: int) -> None:
        """Begin with the bytes from `offset` on, where a record begins: the header, if there is one, only at 0."""
        super().jump(offset)
        self._skip_header = self._header and offset == 0

    def parse(self, limit: int) -> list[Any] | ColumnBatch:
        found = super().parse(limit)
        if not isinstance(self.found, ColumnBatch):  # the traceback of an error would keep its callers' frames alive
            self.found[self.given - len(found) : self.given] = [None] * len(found)
        return found

    def split(self) -> list[Any] | ColumnBatch:
        while not self.stopped and self._more():
            last = self.finished and self.at >= len(self.data)
            if len(self.rest) < self._enough and not last:
                continue
            found, used = self._records(bytes(self.rest), last)
            self.stopped = self._splitter.lost
            self._enough = 0 if used else min(2 * len(self.rest), self._most + 1)
            self.end += used
            del self.rest[:used]
            if found:
                return found
        if self.finished and self._skip_header:
            self._skip_header, self.stopped = False, True
            return [DataLossError(f"{self._name}: it has no header: it is empty")]
        return []

    def _records(self, data: bytes, last: bool) -> tuple[list[Any] | ColumnBatch, int]:
        """Return the records at the beginning of `data`, without the header, and how many bytes they are."""
        grid = self._splitter.grid(data, last) if len(data) <= min(self._most, GRID_BYTES) else None
        if grid is not None:
            body = grid.without_first() if self._skip_header else grid
            if (found := self._table.read(body)) is not None:
                self._skip_header = False
                return found, grid.size
        rows, used = self._splitter.rows(data, last, self.end)
        if self._skip_header and rows:
            self._skip_header = False
            rows = rows if isinstance(rows[0], DataLossError) else rows[1:]  # an invalid header is an error
        return (self._table.elements(self._name, rows) if rows else []), used

    def _more(self) -> bool:
        """Move the next window to `_rest`; return whether a record may end in it now."""
        if self.at >= len(self.data):
            return self.finished and bool(self.rest)
        window = self.data[self.at : self.at + WINDOW]
        self.at += len(window)
        self.rest += window
        return True


class Splitter:
    """Splits records into fields."""

    def __init__(self, name: str, dialect: Dialect, most: int, where: str) -> None:
        self._name = name
        self._most = most
        self._where = where
        self._delimiter = dialect.delimiter
        self._quotes = dialect.quotes
        self.lost = False  # at a quoted field that is not closed, or a record that is too long
        comma = re.escape(dialect.delimiter)
        inside = rb'"(?>[^"]++|""|"(?=[^"\r\n%b]))*+"' % comma  # a single quote inside is reported later
        field = rb'(?>%b|(?!")[^\r\n%b]*+)' % (inside, comma)
        record = rb"%b(?>%b%b)*+" % (field, comma, field)
        self._field = re.compile(rb"(?:\A|%b)(%b)" % (comma, field))
        self._record = re.compile(rb"(%b)(?:\r\n|\n|\r(?!\n|\Z))" % record)
        self._last_record = re.compile(rb"(%b)(?:\r\n|\n|\r|\Z)" % record)

    def grid(self, data: bytes, last: bool) -> Grid | None:
        """Return the fields of the same records, `None` unless all are valid and have the same number of fields."""
        if self._quotes and b'"' in data:
            return quoted_grid(data, self._delimiter, last)
        end = self._end(data, last)
        return plain_grid(data, self._delimiter, end) if end else None

    def _end(self, data: bytes, last: bool) -> int:
        """Return the end of the last record before any quotes."""
        return len(data) if last else data.rfind(b"\n") + 1 or data.rfind(b"\r", 0, -1) + 1

    def rows(self, data: bytes, last: bool, begin: int) -> tuple[list[Fields], int]:
        """Return the records at the beginning of `data`, and how many bytes they are; all of it if it is the `last`.

        `data` begins at byte `begin` of the file. A record that is too long is the last one.
        """
        rows, used = (self._quoted if self._quotes and b'"' in data else self._plain)(data, last, begin)
        if not used and len(data) > self._most:
            return [self._too_long(begin)], len(data)
        return rows, used

    def _plain(self, data: bytes, last: bool, begin: int) -> tuple[list[Fields], int]:
        """Do the same for records without quotes."""
        end = self._end(data, last)
        text = data[:end]
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = text.split(b"\n")
        if not lines[-1]:  # the last one ended
            lines.pop()
        delimiter = self._delimiter
        if end > self._most and (long := [place for place, line in enumerate(lines) if len(line) > self._most]):
            begins = [0, *[match.end() for match in LINE_END.finditer(data)]]
            good: list[Fields] = [line.split(delimiter) for line in lines[: long[0]]]
            return [*good, self._too_long(begin + begins[long[0]])], len(data)
        return [line.split(delimiter) for line in lines], end

    def _quoted(self, data: bytes, last: bool, begin: int) -> tuple[list[Fields], int]:
        """Do the same for records some of which have quotes."""
        find, at, rows = (self._last_record if last else self._record).match, 0, list[Fields]()
        while at < len(data) and (match := find(data, at)):
            record = match[1]
            if len(record) > self._most:
                return [*rows, self._too_long(begin + at)], len(data)
            at = match.end()
            rows.append(self._fields(record) if b'"' in record else record.split(self._delimiter))
        if last and len(data) - at > self._most:
            return [*rows, self._too_long(begin + at)], len(data)
        if last and at < len(data):
            rows.append(DataLossError(f"{self._name}: the file ends in a quoted field, which is not closed"))
            at, self.lost = len(data), True
        return rows, at

    def _too_long(self, begin: int) -> DataLossError:
        """Give up the rest of the file, and return the error for the record that begins at this byte."""
        self.lost = True
        return record_too_long(self._name, f"the record at {self._where} {begin}", self._most)

    def _fields(self, record: bytes) -> Fields:
        """Return the fields of a record, some of which have quotes."""
        fields: list[bytes] = self._field.findall(record)
        for place, field in enumerate(fields):
            if b'"' not in field:
                continue
            if not field.startswith(b'"'):
                return DataLossError(
                    f"{self._name}: field {place} of the record has a quote inside and does not begin with one: "
                    f"{field!r:.60}; put it in quotes, and double those inside"
                )
            inside = field[1:-1]
            if b'"' in inside:
                if b'"' in inside.replace(b'""', b""):
                    return DataLossError(
                        f"{self._name}: field {place} of the record has a quote inside, not doubled: {field!r:.60}"
                    )
                inside = inside.replace(b'""', b'"')
            fields[place] = inside
        return fields
