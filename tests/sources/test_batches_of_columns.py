"""Sources and steps that pass rows on in columns: a batch is what stacking its rows gives, of each dtype."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.elements.borrowed_columns import borrowed
from asyncdata.elements.columns import ColumnBatch
from asyncdata.elements.nullable_column import NullableColumn
from asyncdata.elements.structure import stack
from asyncdata.transforms.shuffle_buffer import ColumnBuffer
from tests.marks import first_by_default
from tests.reference import plain

ROWS = 70

ARRAYS: dict[str, Any] = {
    "big-endian": np.arange(ROWS, dtype=">i4"),
    "strings": np.array([f"a{i}" for i in range(ROWS)]),
    "records": np.array([(i, i / 2) for i in range(ROWS)], [("a", ">i4"), ("b", "f8")]),
    "int32": np.arange(ROWS, dtype="i4"),
    "big-endian rows": np.arange(2 * ROWS, dtype=">f8").reshape(ROWS, 2),
    "bytes": np.array([b"a%d" % i for i in range(ROWS)]),
    "times": np.arange(ROWS).astype("M8[ns]"),
    "rows of times": np.arange(2 * ROWS).astype("M8[ns]").reshape(ROWS, 2),
    "half": np.arange(ROWS, dtype="f2"),
    "rows of strings": np.array([["x", "yy"]] * ROWS),
    "empty rows": np.zeros((ROWS, 0)),
}


def npy(array: Any, folder: Path) -> ad.Dataset:
    np.save(folder / "a.npy", array)
    return ad.NpyDataset(folder / "a.npy")


def by_columns(array: Any, folder: Path) -> ad.Dataset:
    np.save(folder / "a.npy", np.asfortranarray(array))
    return ad.NpyDataset(folder / "a.npy", index=True)


def npz(array: Any, folder: Path) -> ad.Dataset:
    np.savez(folder / "a.npz", x=array, y=np.arange(ROWS))
    return ad.NpyDataset(folder / "a.npz")


def in_turn(array: Any, folder: Path) -> ad.Dataset:
    np.save(folder / "a.npy", array)
    return ad.NpyDataset([folder / "a.npy"] * 3, num_parallel_reads=2)


SOURCES: dict[str, Callable[[Any, Path], ad.Dataset]] = {
    "npy": npy,
    "npy by columns": by_columns,
    "npz": npz,
    "npy in turn": in_turn,
    "from_tensor_slices": lambda array, _: ad.Dataset.from_tensor_slices({"a": array, "b": np.arange(ROWS)}),
    "unbatch": lambda array, _: ad.Dataset.from_tensors(array).unbatch(),
    "shuffle": lambda array, _: ad.Dataset.from_tensor_slices(array).shuffle(9, seed=1, reshuffle_each_iteration=False),
    "shuffle all": lambda array, _: ad.Dataset.from_tensor_slices(array).shuffle(
        seed=1, reshuffle_each_iteration=False
    ),
    "parallel map": lambda array, _: ad.Dataset.range(ROWS).map(lambda i: (array[i], i), num_parallel_calls=2),
    "map of batches": lambda array, _: ad.Dataset.from_tensor_slices(array).map(lambda row: row, batch=16),
    "vectorized map": lambda array, _: ad.Dataset.from_tensor_slices(array).map(lambda row: row, vectorized=True),
    "cache": lambda array, _: ad.Dataset.from_tensor_slices(array).cache(),
}


@pytest.mark.parametrize("dtype", first_by_default([*ARRAYS], 3))
@pytest.mark.parametrize("source", SOURCES)
def test_a_batch_is_what_stacking_its_rows_gives(tmp_path: Path, source: str, dtype: str) -> None:
    ds = SOURCES[source](ARRAYS[dtype], tmp_path)
    rows = list(ds)
    for size in (1, 3, 64, 100):
        expected = [stack(rows[start : start + size]) for start in range(0, len(rows), size)]
        assert [*map(plain, ds.batch(size))] == [*map(plain, expected)]


def test_a_batch_of_stored_objects_is_what_stacking_its_rows_gives(tmp_path: Path) -> None:
    rows = [{"a": None if i % 9 == 4 else {"b": i}, "c": np.arange(1 + i % 9 // 8)} for i in range(40)]
    ad.Dataset.from_iterable(rows).save(str(tmp_path / "saved"))
    ds = ad.Dataset.load(str(tmp_path / "saved"))
    assert [*map(plain, ds)] == [*map(plain, rows)]
    batches = list(ds.batch(4).ignore_errors())
    assert [plain(batch["c"]) for batch in batches][:2] == [plain(stack([row["c"] for row in rows[:4]]))] * 2
    assert [isinstance(batch["a"], dict) for batch in batches][:2] == [True, False]


VALUES: dict[str, tuple[Any, list[Any]]] = {
    "numbers and None": (np.array([np.int64(1), None, np.int64(3)], object), [np.int64(1), None, np.int64(3)]),
    "dicts and None": (np.array([{"a": 1}, None, {"a": 2}], object), [{"a": 1}, None, {"a": 2}]),
    "numbers": (NullableColumn(np.array([1, 0, 3]), np.array([True, False, True])), [np.int64(1), None, np.int64(3)]),
    "times": (
        NullableColumn(np.array([1, 0, 3], "M8[ns]"), np.array([True, False, True])),
        [np.datetime64(1, "ns"), None, np.datetime64(3, "ns")],
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_parts_of_columns_make_the_batches_of_their_rows(name: str) -> None:
    column, rows = VALUES[name]
    columns = ColumnBatch({"x": column}, 3)
    assert [row["x"] for row in columns] == rows
    spans = [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)]
    for start, stop in spans:
        expected = repr(stack([{"x": row} for row in rows[start:stop]]))
        assert repr(columns[start:stop].batch()) == expected
        assert repr(columns.at(range(start, stop)).batch()) == expected
        for begin, end in spans:
            both = repr(stack([{"x": row} for row in [*rows[start:stop], *rows[begin:end]]]))
            assert repr(ColumnBatch.stacked([columns[start:stop], columns[begin:end]])) == both
    assert repr(columns.small_batches([1, 3])) == repr([stack([{"x": rows[0]}]), stack([{"x": r} for r in rows[1:]])])


def test_numbers_beside_a_column_in_which_some_are_missing() -> None:
    some = ColumnBatch(NullableColumn(np.array([1, 0]), np.array([True, False])), 2)
    whole = ColumnBatch(np.array([5, 6]), 2)
    assert ColumnBatch.stacked([some[:1], whole]).tolist() == [1, 5, 6]
    assert ColumnBatch.stacked([some[:1], whole]).dtype == np.int64
    assert ColumnBatch.stacked([whole, some]).tolist() == [5, 6, 1, None]
    assert ColumnBatch.stacked([ColumnBatch(np.array([0.5]), 1), some[:1]]).dtype == np.float64


def test_read_only_arrays_of_a_package_are_copied_once_and_for_elements_alone() -> None:
    lent = np.arange(12.0).reshape(6, 2)
    lent.flags.writeable = False
    columns = borrowed({"x": lent, "y": np.arange(6)}, 6)
    parts = [columns[:4], columns[4:]]
    for batch in (columns[1:5].batch(), ColumnBatch.stacked(parts), columns.small_batches([2, 6])[1]):
        batch["x"][...] = 7
    assert columns.store.raw["x"] is lent
    rows = list(columns[1:3])
    for row in rows:
        row["x"][0] = 7
    assert (lent[1:3, 0] == [2, 4]).all()
    assert columns.store.raw is columns.store.value
    assert columns.batch()["x"][:3].tolist() == [[0, 1], [7, 3], [7, 5]]  # as elements are rows of the arrays


def test_rows_of_read_only_arrays_may_be_changed_behind_each_step() -> None:
    def of_columns() -> ColumnBatch:
        lent = np.arange(12.0).reshape(6, 2)
        lent.flags.writeable = False
        return borrowed({"x": lent}, 6)

    buffer = ColumnBuffer.like(of_columns())
    assert buffer is not None
    places = buffer.put([of_columns()])
    assert places is not None
    found = {
        "shuffle": buffer.take(places),
        "places": of_columns().at([3, 1]),
        "range": of_columns().at(range(0, 6, 2)),
        "zip": ColumnBatch({"left": of_columns().value["x"]}, 6),
        "sent": pickle.loads(pickle.dumps(of_columns()[2:4])),
        "shared": of_columns().shared(),
    }
    for name, columns in found.items():
        assert all(array.flags.writeable for row in columns for array in row.values()), name
