"""CSV in the manner of RFC 4180: bytes in, tuples of values out, with errors in the places of records: without I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from asyncdata.errors import DataLossError

__all__ = ("Column", "CsvLayout", "CsvParser")

Buffer: TypeAlias = bytes | bytearray | memoryview

WINDOW: Final = 1 << 16
"""How much is taken apart at once, unless a record is longer."""

OPEN: Final = re.compile(rb'"(?:[^"]|"")*\Z')
"""A field whose closing quote has not come."""

LINE_END: Final = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True)
class Column:
    """One column that is read: where it is, what its values are, and what stands for one that is missing."""

    place: int
    dtype: np.dtype[Any] | None
    """`None` for bytes."""
    default: Any = None
    required: bool = True


@dataclass(frozen=True)
class CsvLayout:
    """How records are written, and which columns are read; `total` is how many there must be, -1 for any number."""

    columns: Sequence[Column]
    total: int = -1
    delimiter: bytes = b","
    quotes: bool = True
    missing: bytes = b""
    header: bool = False

    @property
    def field(self) -> re.Pattern[bytes]:
        """What matches one field and what ends it."""
        plain = b"[^" + re.escape(self.delimiter) + (rb'"' if self.quotes else b"") + rb"\r\n]*"
        end = b"(" + re.escape(self.delimiter) + rb"|\r\n|\n|\r|\Z)"
        return re.compile((rb'(?:"((?:[^"]|"")*)"|(' + plain + b"))" if self.quotes else b"()(" + plain + b")") + end)

    def rows(self, records: list[list[bytes] | DataLossError]) -> list[Any]:
        """Return records as tuples of values, with an error in the place of each that is wrong."""
        if set(map(type, records)) == {list}:
            try:
                return self.at_once(records)  # pyright: ignore[reportArgumentType]
            except (ValueError, OverflowError, IndexError):
                pass  # one by one, to find out which
        return [record if isinstance(record, DataLossError) else self.row(record) for record in records]

    def at_once(self, records: list[list[bytes]]) -> list[Any]:
        """Return all records, column by column; raise if one is wrong."""
        if self.total >= 0 and set(map(len, records)) != {self.total}:
            raise ValueError("a record has another number of fields")
        parts = [self.converted(column, [record[column.place] for record in records]) for column in self.columns]
        return list(zip(*parts, strict=True))

    def converted(self, column: Column, fields: list[bytes]) -> list[Any]:
        """Return the values of some fields of a column."""
        gone = b"" in fields or (self.missing != b"" and self.missing in fields)
        if gone and column.required:
            raise ValueError("a field is required and missing")
        if column.dtype is None:
            if not gone:
                return fields
            return [column.default if field in {b"", self.missing} else field for field in fields]
        present = [field for field in fields if field not in {b"", self.missing}] if gone else fields
        if b"_" in b"".join(present):
            raise ValueError("Python's own way to write a number")
        values: list[Any] = [*map(int if column.dtype.kind == "i" else float, present)]
        if gone:
            read = iter(values)
            values = [column.default if field in {b"", self.missing} else next(read) for field in fields]
        with np.errstate(over="ignore"):
            return list(np.array(values, column.dtype))

    def row(self, record: list[bytes]) -> Any:
        """Return one record, or what is wrong with it."""
        if self.total >= 0 and len(record) != self.total:
            return DataLossError(f"the record has {len(record)} fields, and should have {self.total}")
        values: list[Any] = []
        for column in self.columns:
            if column.place >= len(record):
                return DataLossError(f"the record has {len(record)} fields, and field {column.place} is to be read")
            field = record[column.place]
            try:
                values += self.converted(column, [field])
            except (ValueError, OverflowError):
                if field in {b"", self.missing}:
                    return DataLossError(f"field {column.place} is missing, and has no default")
                return DataLossError(f"field {column.place} is no {column.dtype}: {field!r:.80}")
        return tuple(values)


class CsvParser:
    """Bytes of a file in, elements out: tuples of values, and errors in the places of records that are wrong.

    >>> parser = CsvParser(CsvLayout([Column(0, np.dtype("int32")), Column(1, None)], total=2))
    >>> parser.feed(b'1,one\\n2,"t,w,o"\\nx,y')
    >>> parser.finish()
    >>> parser.parse(10), parser.parse(10)
    ([(np.int32(1), b'one'), (np.int32(2), b't,w,o')], [DataLossError("field 0 is no int32: b'x'")])
    """

    def __init__(self, layout: CsvLayout) -> None:
        self._layout = layout
        self._field = layout.field
        self._data: Buffer = b""  # what was fed, of which what lies before `_at` is in `_rest`
        self._at = 0
        self._rest = b""  # the beginning of a record
        self._least = 0  # so long `_rest` must be to be looked at again
        self._rows: list[Any] = []  # what was found last, of which `_given` have been returned
        self._given = 0
        self._begin = 0  # where the first of `_rows` begins
        self._next = 0  # where the record after the last of them begins
        self._finished = False

    @property
    def offset(self) -> int:
        """A byte offset at which a record begins: that of the next one after `passed` more."""
        return self._next if self._given == len(self._rows) else self._begin

    @property
    def passed(self) -> int:
        """How many records between `offset` and the next one have been returned."""
        return self._given % len(self._rows) if self._rows else 0

    def jump(self, offset: int) -> None:
        """Begin with the bytes from `offset` on, where a record begins."""
        self._next = offset

    def feed(self, data: Buffer) -> None:
        """Take the file's next bytes, once `parse` has returned nothing; they must stay as they are until it does."""
        self._data, self._at = data, 0

    def finish(self) -> None:
        """Say that no more data will come."""
        self._finished = True

    def parse(self, limit: int) -> list[Any]:
        """Return some elements of what was fed, at most `limit`; [] when it needs more data or has ended."""
        while self._given == len(self._rows):
            self._begin, self._given = self._next, 0
            records = self._records()
            if not records:
                self._rows = []
                return []
            head = self._begin == 0 and self._layout.header
            self._rows = self._layout.rows(records[1:] if head else records)
        rows = self._rows[self._given : self._given + limit]
        self._given += len(rows)
        return rows

    def _records(self) -> list[list[bytes] | DataLossError]:
        """Return the records that end in the next window which any ends in."""
        while self._at < len(self._data):
            window = bytes(self._data[self._at : self._at + WINDOW])
            self._at += len(window)
            self._rest += window
            if len(self._rest) >= self._least and (records := self._taken(False)):
                return records
        if self._finished and self._rest:
            return self._taken(True)
        return []

    def _taken(self, last: bool) -> list[list[bytes] | DataLossError]:
        """Return the records that are whole, and keep the rest; all of it is, if it is the last."""
        data = self._rest
        if self._layout.quotes and b'"' in data:
            records, end = self._by_field(data, last)
        else:
            end = len(data) if last else max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1
            whole = data[:end].replace(b"\r\n", b"\n").replace(b"\r", b"\n").removesuffix(b"\n")
            records = [line.split(self._layout.delimiter) for line in whole.split(b"\n")] if end else []
        self._rest, self._next = data[end:], self._next + end
        self._least = 0 if records else 2 * len(data)
        return records  # pyright: ignore[reportReturnType]

    def _by_field(self, data: bytes, last: bool) -> tuple[list[list[bytes] | DataLossError], int]:
        """Return records some fields of which may have quotes, and where they end."""
        records, begin = list[list[bytes] | DataLossError](), 0
        for record, end in self._each(data, last):
            records.append(record)
            begin = end
        return records, begin

    def _each(self, data: bytes, last: bool) -> Iterator[tuple[list[bytes] | DataLossError, int]]:
        """Yield records and where they end, up to one of which more may come."""
        fields, at, match = list[bytes](), 0, self._field.match
        while at < len(data) or fields:
            found = match(data, at)
            if found is None:
                fields, at = [], len(data) if OPEN.match(data, at) else line_end(data, at)
                if not last and at == len(data):
                    return
                yield DataLossError(BROKEN), at
                continue
            if not last and (found.end() == len(data) and found[3] != b"\n"):
                return
            quoted, plain, end = found.groups()
            fields.append(plain if quoted is None or not self._layout.quotes else quoted.replace(b'""', b'"'))
            at = found.end()
            if end != self._layout.delimiter:
                yield fields, at
                fields = []


BROKEN: Final = "a quote stands inside a field without quotes, follows on the end of one, or is not closed"


def line_end(data: bytes, at: int) -> int:
    """Return where the line ends that `at` lies in."""
    found = LINE_END.search(data, at)
    return len(data) if found is None else found.end()
