"""Filters of Parquet files find the rows that pyarrow finds in the whole table, whatever statistics a file has."""

from __future__ import annotations

import datetime
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from tests.reference import Failed
from tests.running import results

pytestmark = pytest.mark.formats

COMPARISONS = ["=", "==", "!=", "<", ">", "<=", ">=", "in", "not in"]
DAYS = [datetime.date(2020, 1, day) for day in range(1, 8)]
TIMES = [datetime.datetime(2020, 1, day, microsecond=day) for day in range(1, 8)]
TEXTS = ["", "a", "b", "\xff", "zz" * 200, "0", "Z"]
BYTES = [text.encode("latin-1") for text in TEXTS]
REALS = [0.1, 0.2, -0.0, 0.0, math.nan, 1024, 0.3]

COLUMNS: dict[str, list[Any]] = {
    "float16()": [*map(np.float16, REALS)],
    "float32()": REALS,
    "float64()": [*REALS[:6], 2.0**53],
    "int8()": [1, 2, -128, 127, 0, 5, 3],
    "int64()": [1, 2, 2**53 + 1, 2**53, 0, -5, 2**63 - 1],
    "uint32()": [1, 2, 2**32 - 1, 2**31, 0, 5, 7],
    "uint64()": [1, 2, 2**53 + 1, 2**53, 0, 2**63, 2**64 - 1],
    "decimal128(6, 2)": [Decimal(text) for text in ("0.10", "0.2", "-1", "99.99", "0", "3", "4")],
    "bool_()": [True, False, True, True, False, True, False],
    "date32()": DAYS,
    "date64()": DAYS,
    "timestamp('s')": [*map(datetime.datetime.fromisoformat, map(str, DAYS))],
    "timestamp('us')": TIMES,
    "timestamp('ns')": TIMES,
    "timestamp('us', 'America/New_York')": [time.replace(tzinfo=datetime.UTC) for time in TIMES],
    "time32('ms')": [datetime.time(hour) for hour in range(7)],
    "time64('us')": [datetime.time(hour, microsecond=1) for hour in range(7)],
    "duration('us')": [datetime.timedelta(day, 0, day) for day in range(7)],
    "string()": TEXTS,
    "large_string()": TEXTS,
    "dictionary('int8', 'string')": TEXTS,
    "binary()": BYTES,
}
"""Values by the type of their column."""

NUMBERS = [
    *(0, 1, -1, 0.1, 0.0, -0.0, 0.30000001192092896, 2**53, 2.0**53, 2**53 + 1, 2**63 - 1, 2**64 - 1, 127, 128),
    *(math.nan, math.inf, 16_777_217, True, Decimal("0.1"), Decimal("0.10"), np.float32(0.1), np.int8(3)),
]

POINTS = [
    *(DAYS[2], TIMES[2], datetime.datetime(2020, 1, 3), datetime.datetime(2020, 1, 3, 12)),
    *(TIMES[2].replace(tzinfo=datetime.UTC), np.datetime64("2020-01-03T00:00:00.000003001")),
]


def wanted(values: list[Any]) -> list[Any]:
    """Return values to compare with: those of the column, and others of its kind."""
    if isinstance(values[0], (int, float, Decimal, np.floating)):
        return [*values, *NUMBERS]
    return [*values, *POINTS] if isinstance(values[0], datetime.date) else values


def cases(values: list[Any], seed: int) -> list[tuple[str, Any]]:
    """Return comparisons with each of the values, of several for `in`; some of them, in a random order."""
    rng = random.Random(seed)
    others = wanted(values)
    found: list[tuple[str, Any]] = [(comparison, one) for comparison in COMPARISONS[:-2] for one in others]
    found += [("in", [one]) for one in others] * 3
    found += [("in", rng.choices(values, k=3)) for _ in others]
    found += [("not in", [one]) for one in others]
    return rng.sample(found, min(len(found), 20))


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_rows_are_found_wherever_row_groups_lie(tmp_path: Path, kind: str, seed: int) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    from asyncdata.formats.parquet_filters import filter_expression

    values = COLUMNS[kind]
    table = pa.table({"a": pa.array([*values, None], eval(f"pa.{kind}", {"pa": pa})), "id": range(8)})
    path = tmp_path / "a.parquet"
    with pq.ParquetWriter(path, table.schema) as file:
        for size in (1, 2, 8):
            file.write_table(table, row_group_size=size)
    assert pq.ParquetFile(path).num_row_groups == 8 + 4 + 1
    for comparison, value in cases(values, seed):
        filters = [("a", comparison, value)]
        try:
            kept = table.filter(filter_expression(filters))["id"].to_pylist()
        except pa.ArrowException:  # such as a time with a zone, and one without
            assert Failed("PlanError") in results(ad.ParquetDataset(path, ["id"], filters)), filters
            continue
        assert [row["id"] for row in ad.ParquetDataset(path, ["id"], filters)] == kept * 3, filters


def test_the_largest_integers(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    large = 2**64 - 1
    pq.write_table(
        pa.table({"a": pa.array([0, large - 1, large], pa.uint64())}), path := tmp_path / "a", row_group_size=1
    )
    for filters in ([("a", "==", large)], [("a", "in", [large])], [[("a", "in", [5, large])], [("a", ">=", large)]]):
        assert [row["a"] for row in ad.ParquetDataset(path, filters=filters)] == [large]
    for filters in ([("a", "==", 2**64)], [("a", "in", [2**64])], [("a", "in", [-1, large])]):
        with pytest.raises(ad.PlanError, match=r"ParquetDataset\(filters=\) must be"):
            ad.ParquetDataset(path, filters=filters)


@pytest.mark.parametrize("kind", ["string_view", "list", "struct"])
def test_rows_of_types_that_pyarrow_cannot_select_from(tmp_path: Path, kind: str) -> None:
    pa, pq = (
        pytest.importorskip("pyarrow", "16", reason="before it there are no views"),
        pytest.importorskip("pyarrow.parquet"),
    )
    view = pa.string_view()
    column = {
        "string_view": pa.array(["x", None, "", "long " * 9], view),
        "list": pa.array([["x"], [], None, ["y", "z"]], pa.list_(view)),
        "struct": pa.array([{"b": "x"}, None] * 2, pa.struct({"b": view})),
    }[kind]
    pq.write_table(pa.table({"a": column, "id": range(4)}), path := tmp_path / "a.parquet")
    whole = [*ad.ParquetDataset(path)]
    for wanted in ([0, 2, 3], [9], [0, 1, 2, 3]):
        found = [*ad.ParquetDataset(path, filters=[("id", "in", wanted)])]
        assert repr(found) == repr([whole[place] for place in wanted if place < 4])
