"""Rows of a database query as a source of tuples, read in a thread or by an async driver."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import struct
import sys
import time
from asyncio import CancelledError
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable
from operator import countOf
from struct import pack_into
from threading import Lock
from typing import Any, Final, Protocol, TypeAlias, TypeGuard, cast
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from asyncdata.elements.columns import ColumnBatch
from asyncdata.elements.spec import TensorSpec
from asyncdata.errors import StructureError, annotate
from asyncdata.executors.iterator_bridge import END, InlineBridge, IteratorBridge, LoopBridge, Notify, ThreadBridge
from asyncdata.executors.scope import LooplessScope, Scope
from asyncdata.graph.node import ELSEWHERE, REPLACEABLE
from asyncdata.redaction import redacted
from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.tickets import Ordinals
from asyncdata.sources.file_list_digest import stamps
from asyncdata.sources.iterators import IteratorSource
from asyncdata.sources.stateful import StreamPlace

__all__ = ("Connect", "QueryRows", "await_shielded", "read_only_sqlite")

STEPS: Final = 2_000_000
"""After how many instructions SQLite asks whether to continue a query: some hundredths of a second."""

LOCK_TIMEOUT: Final = 5.0
"""Seconds to wait for a database that another process is writing to."""

LARGEST: Final = 512
"""The most rows of a group: Python's garbage collector runs after 700 new tuples, which costs a tenth of a row."""

MOST_ROWS: Final = 256
"""The most rows that are fetched from an async driver at once: each fetch costs a hop, often to the driver's thread."""

CONVERSION_ERRORS: Final = (TypeError, ValueError, ArithmeticError, struct.error)
"""The exceptions for values that do not fit their column's type."""


class Connection(Protocol):
    """A connection of PEP 249, or an async one with the same methods, which are awaited."""

    def cursor(self) -> Any:
        """Return a cursor."""
        ...

    def close(self) -> object:
        """Close the connection."""
        ...


Promised: TypeAlias = Awaitable[Connection] | AbstractAsyncContextManager[Connection]
"""An async connection that is not open yet: awaited and closed, or used with `async with`."""

Connect: TypeAlias = Callable[[str], Connection | Promised]
"""Connects to the database with this name."""


def read_only_sqlite(path: str) -> Connection:
    """Open an existing SQLite database for reading. Text is returned as its stored bytes."""
    absolute = os.path.abspath(path)
    try:
        connection = sqlite3.connect(f"file:{quote(absolute)}?mode=ro", timeout=LOCK_TIMEOUT / 20, uri=True)
    except sqlite3.OperationalError as error:  # which does not name the file
        annotate(error, absolute if os.path.exists(absolute) else f"there is no file {absolute}")
        raise
    connection.text_factory = bytes
    return connection


@dataclass(frozen=True, eq=False)
class QueryRows(IteratorSource):
    """The rows of a query, which is run for each epoch."""

    name: str
    query: str
    dtypes: tuple[np.dtype[Any], ...] = field(repr=False)
    connect: Callable[[], Connection | Promised] = field(repr=False, metadata=REPLACEABLE)
    computes: bool = field(default=False, repr=False, metadata=ELSEWHERE)
    """Whether it is Python's SQLite driver: it blocks only while a process writes, and queries can be interrupted."""

    @property
    def needs_loop(self) -> bool:
        return not self.computes

    @property
    def signature(self) -> Any:
        return tuple([TensorSpec((), dtype) for dtype in self.dtypes])

    def pump(self, scope: Scope, place: StreamPlace) -> IteratorBridge:
        if isinstance(scope, LooplessScope):
            left, ends = scope.left, scope.ends
            return InlineBridge(
                lambda: self.reading(cast("Connection", self.connect()), left, ends), self.columns, LARGEST
            )
        return RowPump(scope, self, place.first)

    def reading(
        self, connection: Connection, left: Callable[[], bool], ends: list[Callable[[], object]]
    ) -> ConnectionRows:
        """Run the query of a plain connection, which is closed if that fails.

        The callback added to `ends` interrupts a query of SQLite. The query also asks now and then whether its reader
        has `left`, as an interrupt before it has begun has no effect.
        """
        closing = ExitStack()
        closing.callback(connection.close)
        try:
            cursor = connection.cursor()
            if self.computes:
                closing.callback(cursor.close)  # else a stored error would keep the file open
                sqlite = cast("sqlite3.Connection", connection)
                sqlite.set_progress_handler(left, STEPS)
                ends.append(sqlite.interrupt)
                closing.callback(ends.remove, sqlite.interrupt)
            self.execute(cursor, left)
            self.check_width(cursor)
            rows = cast("Iterator[Any]", cursor) if isinstance(cursor, Iterator) else iter(cursor.fetchone, None)
            return ConnectionRows(rows, closing)
        except BaseException:
            with suppress(Exception):
                closing.close()
            raise

    def execute(self, cursor: Any, left: Callable[[], bool]) -> object:
        """Run the query in this thread, which made the connection; wait for SQLite's lock in short steps."""
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                return cursor.execute(self.query)
            except sqlite3.OperationalError as error:
                busy = self.computes and error.sqlite_errorcode == sqlite3.SQLITE_BUSY
                if not busy or left() or time.monotonic() > deadline:
                    raise

    async def awaited_rows(self, promised: Promised) -> AsyncIterator[tuple[Any, ...]]:
        """Run the query of an async connection; the first rows are fetched singly, so that they arrive soon."""
        async with connected(promised) as connection:
            cursor: Any = await result_of(connection.cursor())
            await cursor.execute(self.query)
            self.check_width(cursor)
            count = 1
            while rows := await cursor.fetchmany(count):
                for row in rows:
                    yield row
                count = min(2 * count, MOST_ROWS)

    def check_width(self, cursor: Any) -> None:
        """Raise unless the query gives a column for each type; some drivers do not report columns without rows."""
        width = len(self.dtypes)
        with suppress(Exception):  # APSW has no description once a query without rows is done
            width = len(cursor.description or ())
        if width != len(self.dtypes):
            raise StructureError(f"the query gives {width} columns, and output_types has {len(self.dtypes)}")

    def converted(self, items: list[Any]) -> list[Any] | ColumnBatch:
        try:
            return self.columns(items)
        except CONVERSION_ERRORS:  # one by one, to find the row
            return [item if type(item) is Failure else self.row(item) for item in items]

    def columns(self, rows: list[Any]) -> ColumnBatch:
        """Return rows as columns of their types; raise if a row does not fit or is a failure."""
        columns = zip(self.dtypes, zip(*rows, strict=True), strict=True)
        return ColumnBatch(tuple([values_of(column, dtype) for dtype, column in columns]), len(rows))

    def row(self, item: Sequence[Any]) -> Any:
        """Return one row with its types, or its failure."""
        values: list[Any] = []
        for place, (value, dtype) in enumerate(zip(item, self.dtypes, strict=True)):
            try:
                values.extend(values_of((value,), dtype))
            except CONVERSION_ERRORS:
                return Failure(StructureError(f"column {place} of the row is not a valid {dtype.name}: {value!r:.60}"))
        return tuple(values)

    def label(self) -> str:
        return f"SqlDataset({redacted(self.name)}, {redacted(repr(self.query)):.60})"

    @property
    def identity(self) -> str:
        """The label with the complete query."""
        return redacted(f"SqlDataset({self.name}, {self.query!r})")

    @property
    def contents(self) -> tuple[Any, ...]:
        """All fields; for SQLite also the versions of the database and of its write-ahead log."""
        if not self.computes:
            return super().contents
        (path,) = cast("partial[Connection]", self.connect).args
        return (*super().contents, stamps([path, f"{path}-wal"]))

    @property
    def resume_note(self) -> str:
        return f"{self.label()} runs its query again and drops the rows up to the position"


@dataclass(frozen=True)
class ConnectionRows:
    """The rows of a connection, which is closed with them, even if no row was read."""

    rows: Iterator[Any]
    closing: ExitStack

    def __iter__(self) -> Iterator[Any]:
        return self.rows

    def close(self) -> None:
        """Close the connection."""
        self.closing.close()


class RowBuffer:
    """Rows that a thread reads and converts to columns, a group at a time, while they are in the processor's cache.

    Until then rows are available unconverted to a reader that waits, as the next row may take long. The lock is held
    only to move references, once for each group and each `take`.
    """

    def __init__(self, columns: Callable[[list[Any]], ColumnBatch]) -> None:
        self.columns = columns
        self.lock = Lock()
        self.rows: list[Any] = []
        self.parts: deque[ColumnBatch | list[Any]] = deque()
        self.converted_rows = 0  # rows that are in columns

    def __len__(self) -> int:
        return self.converted_rows + len(self.rows)

    def __bool__(self) -> bool:
        return bool(self.parts)

    def append(self, item: Any) -> None:
        self.rows.append(item)

    def read(self, group: Iterator[Any]) -> None:
        try:
            self.rows.extend(group)  # a driver that waits releases the interpreter's lock
        finally:
            self.convert_rows()

    def convert_rows(self) -> None:
        """Convert the rows to columns; if one does not fit, the engine finds it later."""
        with self.lock:
            rows, self.rows = self.rows, []
        end = [rows.pop()] if rows and rows[-1] is END else []
        parts: list[ColumnBatch | list[Any]] = [part for part in (rows, end) if part]
        if rows:
            with suppress(Exception):
                parts[0] = self.columns(rows)
        with self.lock:
            self.parts.extend(parts)
            self.converted_rows += len(rows) + len(end)

    def take(self, limit: int) -> list[Any] | Block:
        with self.lock:
            if not self.parts:
                found = self.rows[:limit]
                del self.rows[: len(found)]
                return found
            part = self.parts.popleft()
            if len(part) > limit:
                self.parts.appendleft(part[limit:])
                part = part[:limit]
            self.converted_rows -= len(part)
            return part if isinstance(part, list) else self.block(part, limit)

    def block(self, first: ColumnBatch, limit: int) -> Block:
        """Return columns, and those after them up to the limit."""
        found, count = [first], len(first)
        while self.parts and isinstance(part := self.parts[0], ColumnBatch) and count + len(part) <= limit:
            found.append(part)
            count += len(part)
            self.converted_rows -= len(part)
            self.parts.popleft()
        return Block.of_columns(found, Ordinals(0, count))


class RowPump(ThreadBridge):
    """Connects in a thread, where a plain driver stays; an async driver continues as a task on the engine's loop."""

    largest = LARGEST

    def __init__(self, scope: Scope, node: QueryRows, first: int) -> None:
        self.scope = scope
        self.node = node
        self.first = first
        self.promised: Promised | None = None
        self.awaited: LoopBridge | None = None
        self.ends: list[Callable[[], object]] = []
        super().__init__(scope, self.connected, "asyncdata-sql", first, RowBuffer(node.columns))

    def connected(self) -> tuple[Iterable[Any], Notify | None]:
        """Return the rows of a plain connection; none for an async one, which is stored for the loop."""
        made = self.node.connect()
        if not is_promise(made):
            return self.node.reading(cast("Connection", made), self.left, self.ends), None
        self.promised = made
        if self.over:
            self.discard()
        return (), None

    def left(self) -> bool:
        """Return whether the engine has stopped reading."""
        return self.over

    async def pull(self, limit: int) -> list[Any] | Block:
        if self.awaited is None:
            items = await super().pull(limit)
            if items or self.promised is None:
                return items
            promised = self.promised
            self.awaited = LoopBridge(
                self.scope, self.scope.loop, lambda: (self.node.awaited_rows(promised), None), self.first
            )
        return await self.awaited.pull(limit)

    def stop(self) -> None:
        super().stop()
        for end in [*self.ends]:
            with suppress(Exception):  # the query has ended
                end()
        if self.awaited is not None:
            self.awaited.stop()
        else:
            self.discard()

    def discard(self) -> None:
        """Close a connection that was never awaited, as an unawaited coroutine warns."""
        close: object = getattr(self.promised, "close", None)
        if isinstance(self.promised, Coroutine) and callable(close):
            close()


@asynccontextmanager
async def connected(promised: Promised) -> AsyncGenerator[Connection]:
    """Open a connection and close it at the end."""
    if isinstance(promised, AbstractAsyncContextManager):
        connection = await promised.__aenter__()
        try:
            yield connection
        finally:
            await await_shielded(promised.__aexit__(*sys.exc_info()))
        return
    connection = await promised
    try:
        yield connection
    finally:
        await await_shielded(result_of(connection.close()))


async def await_shielded(closing: Awaitable[object]) -> None:
    """Await the closing of a connection, even if cancelled meanwhile: else the driver's thread would run on and find
    the loop closed. The canceller waits no longer than for any task."""
    task = asyncio.ensure_future(closing)
    try:
        await asyncio.shield(task)
    except CancelledError:
        await asyncio.wait([task])
        raise


async def result_of(value: object) -> Any:
    """Return a driver's result, awaited if it is awaitable."""
    return await value if isawaitable(value) else value


def is_promise(made: Connection | Promised) -> TypeGuard[Promised]:
    """Return whether a connection must be awaited or entered; one that plain code can enter is already open."""
    return isawaitable(made) or (
        isinstance(made, AbstractAsyncContextManager) and not isinstance(made, AbstractContextManager)
    )


def values_of(column: Sequence[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return values of one column with its dtype: NULL as 0, False or empty, as TensorFlow does."""
    if dtype.kind == "O":
        return np.fromiter(strings_of(column), object, len(column))
    code = {"f": "d", "b": "q"}.get(dtype.kind, dtype.char)
    try:
        numbers = packed(column, code)
    except CONVERSION_ERRORS:
        number = float if code == "d" else integer
        numbers = packed([0 if value is None else number(value) for value in column], code)
    if numbers.dtype == dtype:
        return numbers
    with np.errstate(over="raise"):
        return numbers.astype(dtype, copy=False)


def strings_of(column: Sequence[Any]) -> Iterable[bytes]:
    """Return values of one column as strings."""
    if countOf(map(type, column), bytes) == len(column):
        return column
    if countOf(map(type, column), str) == len(column):
        return map(str.encode, column)
    return map(as_bytes, texts_of_floats(column) if countOf(map(type, column), float) else column)


def texts_of_floats(column: Sequence[Any]) -> list[Any]:
    """Return values of one column, with floats as SQLite's text for them.

    SQLite formats them itself, as its last digit is not always the nearest one and differs between versions.
    """
    db = sqlite3.connect(":memory:")
    db.text_factory = bytes
    try:
        ask = "SELECT CAST(? AS TEXT)"
        return [db.execute(ask, (value,)).fetchone()[0] if type(value) is float else value for value in column]
    finally:
        db.close()


def packed(numbers: Sequence[Any], code: str) -> npt.NDArray[Any]:
    """Return numbers as an array of a type that has the same letter in NumPy and `struct`.

    `struct` accepts only integers in range for integer types, in half the time of checking them first.
    """
    array = np.empty(len(numbers), code)
    pack_into(f"{len(numbers)}{code}", array.data, 0, *numbers)
    return array


def integer(value: Any) -> int:
    """Return a value as an integer; raise if it is not one."""
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
