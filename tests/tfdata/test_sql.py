"""Database queries beside TensorFlow's reader, where it is installed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncdata.experimental import SqlDataset

pytestmark = [pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]


@pytest.mark.parametrize(
    ("columns", "types"),
    [
        ("i", (np.int64,)),
        ("i, f, s, b", (np.int64, np.float64, str, str)),
        ("n, n, n, n, n", (np.int8, np.uint8, np.int32, np.uint16, bool)),
        ("i, f, n", (str, str, str)),
        ("0.1 + 0.2, 1e15, 1e16, 123.0, -1e-5, 9e999, -9e999, 0.0", (str,) * 8),
        ("i, n", (np.float64, np.float64)),
    ],
)
def test_rows_are_tensorflows(tf: Any, tmp_path: Path, columns: str, types: Any) -> None:
    path = str(tmp_path / "a.db")
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (i INTEGER, f REAL, s TEXT, b BLOB, n INTEGER)")
        rows = [(1, 1.5, "xé", b"\0\1", None), (1 << 60, 2.0, "12", b"y", 0), (-3, None, None, None, 1)]
        db.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
        db.commit()
    query = f"SELECT {columns} FROM t ORDER BY rowid"
    theirs = tuple([tf.string if one is str else tf.dtypes.as_dtype(one) for one in types])
    expected = list(tf.data.experimental.SqlDataset("sqlite", path, query, theirs).as_numpy_iterator())
    assert repr(list(SqlDataset("sqlite", path, query, types))) == repr(expected)
