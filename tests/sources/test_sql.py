"""Rows of a database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.experimental import SqlDataset
from asyncdata.testing import check_resumes, leaves_nothing
from tests.reference import Failed
from tests.running import WAYS, results

QUERY = "SELECT id, name, price FROM fruit ORDER BY id"
TYPES = ("int64", "string", "float32")


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "shop #1?.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE fruit (id INTEGER, name TEXT, price REAL)")
        connection.executemany("INSERT INTO fruit VALUES (?, ?, ?)", [(n, f"n{n}", n / 2) for n in range(3000)])
        connection.commit()
    return path


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_rows_as_tuples(path: str, way: Any) -> None:
    with leaves_nothing():
        found = way(SqlDataset("sqlite", path, QUERY, TYPES))
        assert len(way(SqlDataset("sqlite", path, QUERY, TYPES), 3)) == 3
    assert found == [(n, f"n{n}", n / 2) for n in range(3000)]
    assert [type(part) for part in found[0]] == [np.int64, str, np.float32]


def test_it_goes_on(path: str) -> None:
    check_resumes(lambda: SqlDataset("sqlite", path, f"{QUERY} LIMIT 60", TYPES).batch(7))


def test_nothing_is_written(path: str, tmp_path: Path) -> None:
    assert results(SqlDataset("sqlite", path, "DELETE FROM fruit", TYPES)) == [Failed("OperationalError")]
    assert results(SqlDataset("sqlite", tmp_path / "no.db", QUERY, TYPES)) == [Failed("OperationalError")]
    assert not (tmp_path / "no.db").exists()
    assert len(list(SqlDataset("sqlite", path, "SELECT id FROM fruit", ("int32",)))) == 3000


def test_any_driver_by_a_function(path: str) -> None:
    names: list[str] = []

    def connect(name: str) -> Any:
        names.append(name)
        return sqlite3.connect(name)

    ds = SqlDataset(connect, path, QUERY, TYPES)
    assert len(list(ds)) == len(list(ds)) == 3000
    assert names == [path, path]


def test_a_row_that_does_not_fit_is_an_error_in_its_place(path: str) -> None:
    query = "SELECT CASE id WHEN 2 THEN 'x' ELSE id END FROM fruit LIMIT 4"
    assert results(SqlDataset("sqlite", path, query, ("int64",))) == [(0,), (1,), Failed("StructureError"), (3,)]


def test_another_driver_is_refused_where_it_is_named() -> None:
    with pytest.raises(ad.PlanError, match='is "sqlite" or a function'):
        SqlDataset("mysql", "x", QUERY, TYPES)
