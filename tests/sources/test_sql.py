"""Rows of database queries: their types, what is wrong with one, and how a query goes on."""

from __future__ import annotations

import asyncio
import math
import random
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiosqlite
import apsw
import numpy as np
import pytest

import asyncdata as ad
from asyncdata.elements.columns import ColumnBatch
from asyncdata.executors.iterator_bridge import ThreadBridge
from asyncdata.experimental import SqlDataset
from asyncdata.runtime.block import Block, Failure
from asyncdata.sources import sql
from asyncdata.sources.sql import QueryRows, RowBuffer, RowPump, await_shielded
from asyncdata.testing import check_resumes, leaves_nothing
from tests.executors.test_iterator_bridge import FakeScope
from tests.reference import Boom, Failed
from tests.running import WAYS, read_plain, results


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A database with a table of 100 numbers, and one of odd values."""
    found = str(tmp_path / "a database?.db")
    with closing(sqlite3.connect(found)) as db:
        db.execute("CREATE TABLE numbers (i INTEGER, square REAL, name TEXT)")
        db.executemany("INSERT INTO numbers VALUES (?, ?, ?)", [(i, i * i, f"é{i}") for i in range(100)])
        db.execute("CREATE TABLE odd (v)")
        db.executemany("INSERT INTO odd VALUES (?)", [(1,), ("x",), (None,), (1.5,), (b"\0",), (1 << 40,), ("12",)])
        db.commit()
    return found


def connect_async(path: str) -> aiosqlite.Connection:
    """Return what `async with` makes a connection of, as aiosqlite does."""
    return aiosqlite.connect(f"file:{quote(path)}?mode=ro", uri=True)


async def connect_awaited(path: str) -> aiosqlite.Connection:
    """Return a connection that has been made already, as psycopg does."""
    return await connect_async(path)


def connect_apsw(path: str) -> apsw.Connection:
    """Return a connection of a driver that is quicker than Python's, and knows `async with` as well as `with`."""
    return apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOMUTEX)


Rows = Callable[..., SqlDataset]

DRIVERS = {"sqlite": "sqlite", "apsw": connect_apsw, "async_with": connect_async, "awaited": connect_awaited}


@pytest.fixture(params=DRIVERS.values(), ids=DRIVERS.keys())
def rows(request: pytest.FixtureRequest) -> Rows:
    """Makes a dataset of a query, by each kind of driver."""
    return lambda path, query, *types: SqlDataset(request.param, path, query, types)


ALL = "SELECT i, square, name FROM numbers ORDER BY i"


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_rows_are_tuples_of_the_types_that_were_told(rows: Rows, path: str, way: Any) -> None:
    with leaves_nothing():
        found = way(rows(path, ALL, np.int32, np.float32, str))
    assert found == [(i, i * i, f"é{i}".encode()) for i in range(100)]
    assert {tuple(map(type, row)) for row in found} == {(np.int32, np.float32, bytes)}


def test_each_epoch_runs_the_query_again_and_the_types_are_known_before(rows: Rows, path: str) -> None:
    ds = rows(path, ALL, np.int64, np.float64, str)
    assert ds.element_spec == (ad.TensorSpec((), "int64"), ad.TensorSpec((), "float64"), ad.TensorSpec((), object))
    assert ds.cardinality() == ad.UNKNOWN_CARDINALITY
    assert [row[0] for row in ds.repeat(2)] == [*range(100), *range(100)]
    assert [batch[0].dtype for batch in ds.batch(64)] == [np.int64, np.int64]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (np.int64, [1, "failed", 0, "failed", "failed", 1 << 40, 12]),
        (np.uint8, [1, "failed", 0, "failed", "failed", "failed", 12]),
        (np.float64, [1.0, "failed", 0.0, 1.5, "failed", float(1 << 40), 12.0]),
        (bool, [True, "failed", False, "failed", "failed", True, True]),
        (str, [b"1", b"x", b"", b"1.5", b"\0", b"1099511627776", b"12"]),
    ],
)
def test_a_value_that_has_not_its_type_fails_alone_and_null_is_zero_or_empty(
    rows: Rows, path: str, dtype: Any, expected: list[Any]
) -> None:
    found = results(rows(path, "SELECT v FROM odd ORDER BY rowid", dtype))
    assert found == [Failed("StructureError") if value == "failed" else (value,) for value in expected]


def test_floats_are_the_text_that_sqlite_has_for_them(rows: Rows, tmp_path: Path) -> None:
    """Ties and very large ones too, of which its last digit is not always the nearest."""
    rng = random.Random(1)
    values = [math.ldexp(rng.uniform(-1, 1), power) for power in range(-1074, 1024)]
    values += [rng.randrange(-(10**18), 10**18) / 10 ** rng.randrange(30) for _ in range(2000)]
    values += [float(rng.randrange(10 ** rng.randrange(1, 22))) for _ in range(2000)]
    values += [5e-324, -5e-324, sys.float_info.max, 0.0, -0.0, 0.1 + 0.2, 1e15, -1e16]  # 1.0e+15 before SQLite 3.51
    values += [1 << 40, math.inf, -math.inf]
    values += [math.nan]  # which is NULL there
    path = str(tmp_path / "floats.db")
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (v REAL)")
        db.executemany("INSERT INTO t VALUES (?)", [(value,) for value in values])
        db.commit()
        expected = db.execute("SELECT CAST(v AS TEXT) FROM t ORDER BY rowid").fetchall()
    found = list(rows(path, "SELECT v FROM t ORDER BY rowid", str))
    assert [text for (text,) in found] == [(text or "").encode() for (text,) in expected]
    assert [text for (text,) in found[-4:]] == [b"1099511627776.0", b"Inf", b"-Inf", b""]


def test_values_of_other_drivers_are_taken_for_what_they_say(path: str) -> None:
    class Cursor:
        description = [("a",)] * 2
        rows = iter([(Decimal(2), Decimal("1.5")), (Decimal("2.5"), 1), (3, memoryview(b"x"))])

        def execute(self, query: str) -> None: ...

        def fetchone(self) -> Any:
            return next(self.rows, None)

    class Other:
        def cursor(self) -> Cursor:
            return Cursor()

        def close(self) -> None: ...

    found = results(SqlDataset(lambda _: Other(), "", "", (int, str)))
    assert found == [(2, b"1.5"), Failed("StructureError"), (3, b"x")]


def test_rows_lie_in_columns_of_which_batches_are_parts(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ColumnBatch] = []
    elements = ColumnBatch.elements
    monkeypatch.setattr(ColumnBatch, "elements", lambda self: [asked.append(self), elements(self)][1])
    query = "SELECT i, i % 2, nullif(square, 4), name FROM numbers ORDER BY i"
    batches = list(SqlDataset("sqlite", path, query, (np.uint8, bool, np.float32, str)).batch(30))
    assert not asked
    expected = (range(100), [i % 2 for i in range(100)], [0 if i == 2 else i * i for i in range(100)])
    for place, (values, kind) in enumerate(zip(expected, (np.uint8, bool, np.float32), strict=True)):
        found = np.concatenate([batch[place] for batch in batches])
        np.testing.assert_array_equal(found, np.array(values, kind), strict=True)
    assert [name for batch in batches for name in batch[3]] == [f"é{i}".encode() for i in range(100)]


class Odd:
    """A driver with a cursor that gives numbers, and does what a function says before each."""

    description = (("a",),)

    def __init__(self, count: int, before: Callable[[int], Any]) -> None:
        self.numbers = iter(range(count))
        self.before = before

    def cursor(self) -> Odd:
        return self

    def execute(self, query: str) -> None: ...

    def fetchone(self) -> tuple[Any] | None:
        number = next(self.numbers, None)
        return None if number is None else (self.before(number) or number,)

    def close(self) -> None: ...


def test_rows_that_are_here_do_not_wait_for_one_that_is_long_in_coming() -> None:
    for last in (0, 40, 700):
        seen = threading.Event()
        waited: list[bool] = []

        def before(number: int, last: int = last, seen: threading.Event = seen, waited: list[bool] = waited) -> None:
            if number == last + 1:
                waited.append(seen.wait(120))

        with SqlDataset(lambda _, before=before: Odd(1000, before), "", "", (int,)).prefetch(900).iterate() as found:
            assert [next(found)[0] for _ in range(last + 1)] == [*range(last + 1)]
            seen.set()
            assert len(list(found)) == 999 - last
        assert waited == [True]


async def test_rows_that_are_taken_whenever_and_fail_wherever_are_given_once_and_in_order() -> None:
    chance, failed = random.Random(1), set[int]()
    read = 0

    def before(number: int) -> Any:
        nonlocal read
        read = number + 1
        if chance.random() < 0.02:
            pump.break_off()
        if chance.random() < 0.002:
            failed.add(number)
            raise Boom(number)
        return "odd" if number % 1000 == 500 else None

    scope: Any = FakeScope()
    node = QueryRows("", "", (np.dtype(int),), lambda: Odd(20_000, before))
    pump = RowPump(scope, node, 0)
    found: list[Any] = []
    while items := await pump.pull(limit := chance.choice([1, 7, 300, 3000])):
        assert len(items) <= limit
        found += items.items if isinstance(items, Block) else node.converted(items)
        assert read <= len(found) + pump.ordered  # never more than was ordered
    expected = [number in failed or number % 1000 == 500 or (number,) for number in range(20_000)]
    assert [type(item) is Failure or item for item in found] == expected
    pump.stop()
    await scope.owned.join_async()


async def test_rows_that_are_put_into_columns_when_they_are_to_be_taken_are_waited_for() -> None:
    stuck, go_on, laying, looked = (threading.Event() for _ in range(4))
    taken: list[int] = []

    def before(number: int) -> None:
        if number == 12:
            stuck.set()
            go_on.wait(120)

    class Watching(RowBuffer):
        def take(self, limit: int) -> Any:
            if not self.parts:
                go_on.set()
                laying.wait(120)
            found = super().take(limit)
            taken.append(len(found))
            if not found:
                looked.set()
            return found

    def columns(rows: list[Any]) -> ColumnBatch:
        if go_on.is_set():
            laying.set()
            looked.wait(120)
        return ColumnBatch.ints(rows)

    scope: Any = FakeScope()
    rows = (number for number in range(24) if before(number) is None)
    pump = ThreadBridge(scope, lambda: (rows, None), "test-pump", 0, Watching(columns))
    pump.pace.group, pump.pace.target = 8, 1e6  # then sixteen
    pump.ordered = 24
    pump.order(24)
    stuck.wait(120)
    found: list[Any] = []
    while len(found) < 24:
        items = await pump.pull(24)
        assert isinstance(items, Block)
        found += items.items
    assert (found, taken) == ([*range(24)], [8, 0, 16])
    pump.stop()
    await scope.owned.join_async()


def test_text_is_the_bytes_that_are_stored_also_if_they_are_no_utf_8(path: str) -> None:
    query = "SELECT CAST(x'ff41' AS TEXT) UNION ALL SELECT 'é'"
    assert list(SqlDataset("sqlite", path, query, [np.bytes_])) == [(b"\xffA",), ("é".encode(),)]


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_number_that_a_float_cannot_hold_fails_its_row_alone(rows: Rows, path: str, dtype: Any) -> None:
    query = "SELECT column1 FROM (VALUES (1.5), (1e300), (9e999), (NULL))"
    assert results(rows(path, query, dtype)) == [(1.5,), Failed("StructureError"), (np.inf,), (0.0,)]


def test_no_rows_are_no_elements(rows: Rows, path: str) -> None:
    assert results(rows(path, "SELECT i FROM numbers WHERE i > 1000", int)) == []


@pytest.mark.parametrize("rows", [driver for name, driver in DRIVERS.items() if name != "apsw"], indirect=True)
@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT none FROM numbers", "OperationalError"),
        ("", "StructureError"),
        ("SELECT i, name FROM numbers", "StructureError"),
        ("DELETE FROM numbers", "OperationalError"),
        ("SELECT i FROM numbers; SELECT 1", "ProgrammingError"),
    ],
)
def test_a_query_that_cannot_be_run_is_one_error(rows: Rows, path: str, query: str, error: str) -> None:
    found = results(rows(path, query, int))
    assert found == [Failed(error)] or (error == "ProgrammingError" and found == [Failed("Warning")])
    assert len(results(rows(path, ALL, int, int, str))) == 100  # nothing was deleted


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT none FROM numbers", "SQLError"),
        ("SELECT i, name FROM numbers", "StructureError"),
        ("DELETE FROM numbers", "ReadOnlyError"),
    ],
)
def test_an_error_is_its_drivers(path: str, query: str, error: str) -> None:
    assert results(SqlDataset(connect_apsw, path, query, (int,))) == [Failed(error)]


def test_a_database_that_is_not_there_is_one_error_and_is_not_made(tmp_path: Path) -> None:
    missing = tmp_path / "none.db"
    with pytest.raises(sqlite3.OperationalError, match="unable to open") as caught:
        list(SqlDataset("sqlite", missing, "SELECT 1", (int,)))
    assert caught.value.__notes__ == [f"there is no file {missing}", "in SqlDataset(none.db, 'SELECT 1'), element 0"]
    assert not missing.exists()


async def refuse(name: str) -> Any:
    raise ConnectionRefusedError(name)


@asynccontextmanager
async def refuse_to_enter(name: str) -> AsyncIterator[Any]:
    yield await refuse(name)


@pytest.mark.parametrize("connect", [refuse, refuse_to_enter])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_an_async_connection_that_cannot_be_made_is_one_error(way: Any, connect: Any) -> None:
    with leaves_nothing():
        assert way(SqlDataset(connect, "", "SELECT 1", (int,))) == [Failed("ConnectionRefusedError")]


def test_goes_on_from_any_row(rows: Rows, path: str) -> None:
    check_resumes(lambda: rows(path, ALL, int, int, str))
    check_resumes(lambda: rows(path, ALL, int, int, str).shuffle(10, seed=1).batch(7), places=8)
    assert "'SELECT i, square" in (told := rows(path, ALL, int, int, str).explain())
    assert "runs its query again and drops the rows up to the position" in told


def test_a_state_of_another_query_is_refused(rows: Rows, path: str) -> None:
    with rows(path, ALL, int, int, str).iterate() as found:
        next(found)
        state = found.state_dict()
    with pytest.raises(ad.ResumeError, match="another pipeline"):
        rows(path, ALL + " DESC", int, int, str).iterate(state=state)


def test_a_query_that_gives_less_when_it_goes_on_is_an_error(rows: Rows, path: str) -> None:
    with rows(path, ALL, int, int, str).iterate() as found:
        for _ in range(50):
            next(found)
        state = found.state_dict()
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM numbers WHERE i > 10")
        db.commit()
    with pytest.raises(ad.ResumeError, match="ended after 11 elements"):
        next(rows(path, ALL, int, int, str).iterate(state=state))


def test_any_driver_by_a_function_which_runs_and_is_closed_in_the_thread_that_reads(path: str) -> None:
    seen: list[Any] = []

    class Watched(sqlite3.Connection):
        def close(self) -> None:
            seen.append(("close", threading.current_thread().name))
            super().close()

    def connect(name: str) -> Any:
        seen.append((name, threading.current_thread().name))
        return sqlite3.connect(path, factory=Watched)

    ds = SqlDataset(connect, "user:secret@host", ALL, (int, int, str))
    assert len(list(ds)) == 100
    assert seen == [("user:secret@host", "asyncdata-sql"), ("close", "asyncdata-sql")]
    assert "secret" not in ds.explain()
    seen.clear()
    with leaves_nothing():
        assert len(read_plain(ds, 3)) == 3
    assert [what for what, _ in seen] == ["user:secret@host", "close"]


class Endless:
    """An async driver whose queries never give a row, and which writes down what is done with it."""

    def __init__(self, seen: list[str], error: Exception | None = None) -> None:
        self.description = [("a",)]
        self.seen = seen
        self.error = error

    def cursor(self) -> Endless:
        return self

    async def execute(self, query: str) -> None:
        self.seen.append(query)

    async def fetchmany(self, count: int) -> list[Any]:
        self.seen.append(f"fetch {count}")
        if self.error is not None:
            raise self.error
        await asyncio.get_running_loop().create_future()
        return []

    def close(self) -> None:  # a plain method, as aiomysql has it
        self.seen.append("close")


async def test_an_async_query_runs_on_the_engines_loop_and_is_cancelled_and_closed_when_it_is_left() -> None:
    seen: list[str] = []
    waiting = asyncio.Event()

    class Watched(Endless):
        async def fetchmany(self, count: int) -> list[Any]:
            seen.append(threading.current_thread().name)
            loop.call_soon_threadsafe(waiting.set)
            return await super().fetchmany(count)

    async def connect(name: str) -> Any:
        return Watched(seen)

    loop = asyncio.get_running_loop()
    with leaves_nothing():
        async with SqlDataset(connect, "", "SELECT", (int,)).iterate() as found:
            first = asyncio.ensure_future(anext(found))
            await waiting.wait()
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
    assert seen == ["SELECT", "asyncdata-engine", "fetch 1", "close"]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_an_async_query_that_breaks_off_is_one_error_and_its_connection_goes_back(way: Any) -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def from_pool(name: str) -> AsyncIterator[Any]:
        try:
            yield Endless(seen, ConnectionError("gone"))
        finally:
            seen.append("back")

    with leaves_nothing():
        assert way(SqlDataset(from_pool, "", "SELECT", (int,))) == [Failed("ConnectionError")]
    assert seen == ["SELECT", "fetch 1", "back"]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_an_async_query_that_is_left_early_leaves_nothing(path: str, way: Any) -> None:
    ds = SqlDataset(connect_async, path, ALL, (int, int, str))
    with leaves_nothing():
        assert [row[0] for row in way(ds, 3)] == [0, 1, 2]


def test_left_while_a_function_is_about_to_promise_a_connection_nothing_is_left_unawaited() -> None:
    called, go_on = threading.Event(), threading.Event()

    async def made() -> Any:
        raise AssertionError("nobody awaits this")

    def connect(name: str) -> Any:
        called.set()
        go_on.wait()
        return made()

    with leaves_nothing():
        found = SqlDataset(connect, "", "SELECT", (int,)).iterate()

        def read() -> None:
            with pytest.raises(ad.ClosedError):
                next(found)

        reader = threading.Thread(target=read)
        reader.start()
        called.wait()
        leaving = threading.Thread(target=found.close)
        leaving.start()
        reader.join()
        go_on.set()
        leaving.join()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SqlDataset("mysql", "x", "SELECT 1", (int,)), 'driver_name must be "sqlite", or a function'),
        (lambda: SqlDataset("sqlite", "x", "SELECT 1", ()), "output_types must have a dtype for each column"),
        (lambda: SqlDataset("sqlite", "x", "SELECT 1", int), "output_types must have a dtype for each column"),  # type: ignore[arg-type]
        (lambda: SqlDataset("sqlite", "x", "SELECT 1", (np.complex64,)), "a column of output_types must be of"),
    ],
)
def test_wrong_arguments_are_errors_where_they_are_given(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ad.PlanError, match=message):
        make()


def test_a_connection_that_is_being_closed_is_closed_to_the_end() -> None:
    """Also where the consumer leaves meanwhile: what a driver's thread answers still finds the loop."""
    seen: list[str] = []

    async def close() -> None:
        seen.append("begun")
        await asyncio.sleep(0.001)
        seen.append("closed")

    async def body() -> None:
        closing = asyncio.create_task(await_shielded(close()))
        while not seen:
            await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert seen == ["begun", "closed"]

    asyncio.run(body())


TWO_AND_NO_END = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n WHERE i < 2"
"""Python's driver gives a row when it knows whether there is another one: so one, and then SQLite goes on for ever."""


@pytest.mark.parametrize("elsewhere", [False, True], ids=["engine", "thread"])
def test_a_query_of_sqlite_is_ended_when_it_is_left(path: str, elsewhere: bool) -> None:
    ds: ad.Dataset[Any] = SqlDataset("sqlite", path, TWO_AND_NO_END, (int,))
    ds = ds.prefetch(3).map(lambda i: (i,)) if elsewhere else ds.prefetch(3)
    with leaves_nothing(), ds.iterate() as found:
        assert next(found) == (0,)
        assert ("asyncdata-sql" in {thread.name for thread in threading.enumerate()}) is elsewhere


@pytest.mark.parametrize("elsewhere", [False, True], ids=["engine", "thread"])
def test_a_query_whose_steps_are_long_is_broken_off_too(path: str, elsewhere: bool) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE texts (t TEXT)")
        db.executemany("INSERT INTO texts VALUES (?)", [("ab" * 10_000 + str(i),) for i in range(2000)])
        db.commit()
    slow = "SELECT 1 FROM texts x, texts y WHERE replace(upper(x.t || y.t), 'BA', 'c') = ''"
    ds: ad.Dataset[Any] = SqlDataset("sqlite", path, f"SELECT 1 UNION ALL SELECT 2 UNION ALL {slow}", (int,))
    with leaves_nothing(), (ds.prefetch(3).map(lambda i: (i,)) if elsewhere else ds).iterate() as found:
        assert next(found) == (1,)


async def test_a_query_of_sqlite_that_never_gave_a_row_is_ended_when_it_is_cancelled(path: str) -> None:
    with leaves_nothing():
        async with SqlDataset("sqlite", path, TWO_AND_NO_END.replace("i < 2", "i < 0"), (int,)).iterate() as found:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await anext(found)


async def test_a_database_that_is_locked_is_waited_for_until_the_pipeline_is_left(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, again = 0, asyncio.Event()
    loop, execute = asyncio.get_running_loop(), sqlite3.Cursor.execute

    class Counted(sqlite3.Cursor):
        def execute(self, *args: Any) -> Any:
            nonlocal tries
            tries += 1
            if tries == 2:
                loop.call_soon_threadsafe(again.set)
            return execute(self, *args)

    class Connection(sqlite3.Connection):
        def cursor(self, factory: Any = Counted) -> Any:
            return super().cursor(factory)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Connection))
    with closing(sqlite3.connect(path, isolation_level=None)) as writer, leaves_nothing():
        writer.execute("BEGIN EXCLUSIVE")
        async with SqlDataset("sqlite", path, ALL, (int, float, str)).iterate() as found:
            waiting = asyncio.ensure_future(anext(found))
            await again.wait()
            writer.execute("COMMIT")
            assert await waiting == (0, 0, "é0".encode())
        writer.execute("BEGIN EXCLUSIVE")
        tries = 0
        again.clear()
        async with SqlDataset("sqlite", path, ALL, (int, float, str)).iterate() as found:
            waiting = asyncio.ensure_future(anext(found))
            await again.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        writer.execute("COMMIT")  # as long as one process has a lock, SQLite closes none of its files


def test_a_database_that_stays_locked_is_an_error(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "LOCK_TIMEOUT", 0.2)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        for way in WAYS:
            assert way(SqlDataset("sqlite", path, ALL, (int, float, str))) == [Failed("OperationalError")]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("at", [0, 1, 40])
def test_a_query_that_fails_on_its_way_is_one_error(path: str, at: int, way: Any) -> None:
    query = f"SELECT abs(CASE WHEN i = {at} THEN -9223372036854775808 ELSE i END) FROM numbers"
    with leaves_nothing():
        *given, last = way(SqlDataset("sqlite", path, query, (int,)))
    assert given == [(i,) for i in range(at - 1)]  # Python's driver is one row ahead of what it gives
    assert last == Failed("OperationalError")
