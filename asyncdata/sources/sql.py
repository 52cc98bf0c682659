"""Rows of a database query as a source of tuples, read in a thread of its own."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

import numpy as np

from asyncdata.errors import StructureError
from asyncdata.runtime.block import Failure
from asyncdata.runtime.pump import Pump, ThreadPump
from asyncdata.runtime.scope import Scope
from asyncdata.sources.generator import Pumped
from asyncdata.sources.stateful import StreamPlace
from asyncdata.structure import TensorSpec

__all__ = ("Connection", "QueryRows", "read_only_sqlite")


class Connection(Protocol):
    """A connection as PEP 249 has it."""

    def cursor(self) -> Any:
        """Return a cursor, which executes queries."""
        ...

    def close(self) -> object:
        """Let go of the database."""
        ...


def read_only_sqlite(path: str) -> Connection:
    """Open an SQLite database that is there, for reading."""
    return sqlite3.connect(f"file:{quote(os.path.abspath(path))}?mode=ro", uri=True)


@dataclass(frozen=True, eq=False)
class QueryRows(Pumped):
    """The rows that a query gives, run anew for each epoch."""

    name: str
    query: str
    dtypes: tuple[np.dtype[Any], ...] = field(repr=False)
    connect: Callable[[], Connection] = field(repr=False)

    @property
    def signature(self) -> Any:
        return tuple([TensorSpec((), dtype) for dtype in self.dtypes])

    def pump(self, scope: Scope, place: StreamPlace) -> Pump:
        return ThreadPump(scope, lambda: (self.rows(), None), "asyncdata-sql", place.first)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Run the query; the connection lives in the thread that does."""
        with closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(self.query)
            width = len(cursor.description or ())
            if width != len(self.dtypes):
                raise StructureError(f"the query gives {width} columns, and output_types has {len(self.dtypes)}")
            yield from iter(cursor.fetchone, None)

    def converted(self, items: list[Any]) -> list[Any]:
        if Failure not in set(map(type, items)):
            try:
                columns = zip(self.dtypes, zip(*items, strict=True), strict=True)
                return list(zip(*[values_of(column, dtype) for dtype, column in columns], strict=True))
            except (TypeError, ValueError, OverflowError):
                pass  # one by one, to find out of which row
        return [item if type(item) is Failure else self.row(item) for item in items]

    def row(self, item: Sequence[Any]) -> Any:
        """Return one row with its types, or what is wrong with it."""
        values: list[Any] = []
        for place, (value, dtype) in enumerate(zip(item, self.dtypes, strict=True)):
            try:
                values += values_of((value,), dtype)
            except (TypeError, ValueError, OverflowError):
                return Failure(StructureError(f"column {place} of the row is no {dtype.name}: {value!r:.60}"))
        return tuple(values)

    def label(self) -> str:
        return f"SqlDataset({self.name}, {self.query!r:.60})"

    @property
    def identity(self) -> str:
        """The label with the whole query."""
        return f"SqlDataset({self.name}, {self.query!r})"

    @property
    def resumption(self) -> str:
        return f"{self.label()} runs its query again and drops the rows up to the place"


def values_of(column: Sequence[Any], dtype: np.dtype[Any]) -> list[Any]:
    """Return values of one column with its dtype: NULL as 0, False or empty, as TensorFlow does."""
    kinds = set(map(type, column))
    if dtype.kind == "O":
        return list(map(str.encode, column)) if kinds == {str} else [as_bytes(value) for value in column]
    if dtype.kind == "f":
        floats = column if kinds == {float} else [0.0 if value is None else float(value) for value in column]
        return list(np.array(floats, np.float64).astype(dtype))
    numbers = np.array(
        column if kinds == {int} else [0 if value is None else whole(value) for value in column], np.int64
    )
    narrow = numbers.astype(dtype)
    if dtype.kind != "b" and not np.array_equal(narrow, numbers):
        raise OverflowError
    return list(narrow)


def whole(value: Any) -> int:
    """Return a value as an integer, if it is one."""
    number = int(value)
    if not isinstance(value, (str, bytes)) and number != value:
        raise ValueError(value)
    return number


def as_bytes(value: Any) -> bytes:
    """Return a value as a string."""
    if value is None:
        return b""
    try:
        return memoryview(value).tobytes()
    except TypeError:
        return str(value).encode()
