"""SqlDataset: the rows of a query."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from os import PathLike, fspath
from typing import Any, cast

import numpy as np

from asyncdata.dataset import Dataset
from asyncdata.elements.validation import check_dtype
from asyncdata.errors import PlanError
from asyncdata.sources.sql import Connect, QueryRows, read_only_sqlite
from asyncdata.storage import local_path

__all__ = ("SqlDataset",)


class SqlDataset(Dataset[tuple[Any, ...]]):
    """The rows of a query as tuples, in the order of the query; strings are `bytes`, NULL is 0, False or empty.

    A value that does not fit its type is a `StructureError` in its row's place. A query that cannot be run is one
    error. From a state the query is run again, and the rows that were read are dropped: the query needs an ORDER BY
    that fixes the order completely, and the table must not change.

    >>> import asyncdata as ad, contextlib, numpy as np, pathlib, sqlite3, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = str(pathlib.Path(folder) / "people.db")
    ...     with contextlib.closing(sqlite3.connect(path)) as db:
    ...         _ = db.execute("CREATE TABLE people (name TEXT, age INTEGER)")
    ...         _ = db.execute("INSERT INTO people VALUES ('Ann', 41), ('Bo', NULL)")
    ...         db.commit()
    ...     list(ad.experimental.SqlDataset("sqlite", path, "SELECT * FROM people ORDER BY name", (str, np.int32)))
    [(b'Ann', np.int32(41)), (b'Bo', np.int32(0))]
    """

    def __init__(
        self,
        driver_name: str | Connect,
        data_source_name: str | PathLike[str],
        query: str,
        output_types: Sequence[Any],
    ) -> None:
        """Run `query` and give its columns the dtypes `output_types`: integers, floats, `bool` or `str`.

        `driver_name` is `"sqlite"`, and `data_source_name` the path of a database, which is opened read-only and
        whose query is interrupted when the pipeline ends; or a function that returns a connection of any DB-API driver
        (PEP 249) for `data_source_name`, called in the thread that then reads. An async driver of that shape is awaited
        on the engine's loop instead: the function returns an awaitable of a connection, which is closed at the end, or
        an async context manager for one. Examples are `aiosqlite.connect`, `psycopg.AsyncConnection.connect`,
        `aiomysql.connect`, or your function that takes a connection from a pool. The driver is most of a row's cost:
        APSW reads SQLite faster than `sqlite3`, by
        `lambda path: apsw.Connection(path, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOMUTEX)`.
        """
        source = fspath(data_source_name)
        if callable(driver_name):
            name, connect = (
                getattr(driver_name, "__qualname__", type(driver_name).__name__),
                partial(driver_name, source),
            )
        elif driver_name == "sqlite":
            path = local_path(source, "an SQLite database")
            name, connect = os.path.basename(path), partial(read_only_sqlite, path)
        else:
            raise PlanError(
                f'driver_name must be "sqlite", or a function that returns a connection, got {driver_name!r}'
            )
        super().__init__(QueryRows(name, query, output_dtypes(output_types), connect, driver_name == "sqlite"))


def output_dtypes(types: Any) -> tuple[np.dtype[Any], ...]:
    """Return the dtypes of columns, `object` for strings."""
    if not isinstance(types, (tuple, list)) or not types:
        raise PlanError(f"output_types must have a dtype for each column, got {types!r}")
    dtypes = [check_dtype("a column of output_types", one) for one in cast("Sequence[Any]", types)]
    for given, dtype in zip(cast("Sequence[Any]", types), dtypes, strict=True):
        if dtype.kind not in "biufUSO" or dtype == np.uint64:
            raise PlanError(f"a column of output_types must be of integers, floats, bool or str, got {given!r}")
    return tuple([np.dtype(object) if dtype.kind in "US" else dtype for dtype in dtypes])
