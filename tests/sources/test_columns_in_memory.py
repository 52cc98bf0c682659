"""Rows that lie in arrays: elements and batches are what they are without."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.runtime.tickets import Ordinals
from asyncdata.sources.in_memory import Slices

ROWS = 40


@pytest.mark.parametrize(
    "tensors",
    [
        np.arange(ROWS, dtype=np.int16),
        np.ones((ROWS, 3), np.float32),
        {"a": np.arange(ROWS), "b": (np.arange(ROWS) % 2 == 0, np.ones((ROWS, 2), np.complex64))},
        (np.arange(ROWS), np.array([f"#{i}" for i in range(ROWS)])),
    ],
    ids=["numbers", "rows", "nested", "with strings"],
)
@pytest.mark.parametrize("size", [3, 32])
def test_batches_are_those_of_the_elements(tensors: Any, size: int) -> None:
    ds = ad.Dataset.from_tensor_slices(tensors)
    for one in (ds, ds.shuffle(seed=1), ds.skip(2).take(35), ds.shuffle(10, seed=1), ds.shard(2, 1), ds.repeat(2)):
        batches, elements = one.batch(size), list(one)
        assert repr(list(batches)) == repr(list(ad.Dataset.from_iterable(elements).batch(size)))


def test_ranges_give_pythons_integers() -> None:
    assert {type(number) for number in ad.Dataset.range(100)} == {int}
    assert {type(number) for number in ad.Dataset.range(100).shuffle(seed=1)} == {int}
    (batch,) = ad.Dataset.range(90, -30, -3).batch(64)
    assert (batch.dtype, batch.tolist()) == (np.int64, list(range(90, -30, -3)))


def test_a_range_beyond_int64_is_refused_by_batch_alone() -> None:
    huge = ad.Dataset.range(2**63 - 20, 2**63 + 20)
    assert len(list(huge)) == 40
    with pytest.raises(ad.StructureError, match="int64"):
        list(huge.batch(40))


def test_elements_are_views_of_what_was_given() -> None:
    tensors = np.zeros((ROWS, 2))
    assert all(row.base is not None for row in ad.Dataset.from_tensor_slices(tensors))
    with pytest.raises(ValueError, match="read-only"):
        next(iter(ad.Dataset.from_tensor_slices(tensors)))[0] = 1
    assert np.shares_memory(next(iter(ad.Dataset.from_tensor_slices(tensors))), tensors)


def test_batches_are_no_views() -> None:
    tensors = np.zeros(ROWS)
    for batch in ad.Dataset.from_tensor_slices(tensors).batch(ROWS):
        np.add(batch, 1, out=batch)
    assert tensors.sum() == 0


@pytest.mark.parametrize(
    "tensors",
    [
        {f"c{number}": np.arange(ROWS) / (number + 1) for number in range(600)},
        (np.array([f"#{i}" for i in range(ROWS)]), np.array([[i] * (i % 3) for i in range(ROWS)], object)),
        {"time": np.arange(ROWS).astype("datetime64[s]"), "pair": np.ones(ROWS, [("a", "i4"), ("b", "f8")])},
    ],
    ids=["many columns", "objects", "times and pairs"],
)
def test_rows_in_another_order_are_taken_from_all_columns_at_once(
    tensors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = list(ad.Dataset.from_tensor_slices(tensors))
    monkeypatch.setattr(Slices, "rows", mock.Mock(side_effect=AssertionError("row by row")))
    source = ad.Dataset.from_tensor_slices(tensors).plan
    assert isinstance(source, Slices)
    places = [*range(ROWS)][::-3] * 2
    block = source.gather(places, Ordinals(0, len(places)))
    assert repr(list(block.items)) == repr([rows[place] for place in places])


RECORDS = np.ones(ROWS, [("a", "i4"), ("b", "f8")])


@pytest.mark.parametrize(
    "ds",
    [
        ad.Dataset.from_tensor_slices(RECORDS),
        ad.Dataset.from_tensor_slices((RECORDS, np.arange(ROWS))),
        ad.Dataset.from_tensor_slices({"x": RECORDS, "y": [[0]] * ROWS}),
        ad.Dataset.from_tensor_slices(RECORDS).shuffle(seed=1),
        ad.Dataset.from_tensor_slices((RECORDS, np.arange(ROWS))).shuffle(seed=1),
        ad.Dataset.from_tensors(RECORDS[0]),
        ad.Dataset.from_list(list(RECORDS)),
        ad.Dataset.from_source(RECORDS),
        ad.Dataset.from_tensor_slices(RECORDS).cache(),
        ad.Dataset.from_tensors(RECORDS[0]).repeat(3),
        ad.Dataset.from_tensor_slices(RECORDS).batch(8).unbatch(),
    ],
    ids=str,
)
def test_records_are_each_readers_own(ds: ad.Dataset[Any]) -> None:
    """The fields of a record can be assigned to, unlike those of an array."""
    for _ in range(2):
        for row in ds:
            record = (
                next(iter(row.values())) if isinstance(row, dict) else row[0] if type(row) in (tuple, list) else row
            )
            assert record["a"] == 1
            record["a"] = 7
    assert RECORDS["a"].tolist() == [1] * ROWS


def test_large_rows_in_another_order_are_views() -> None:
    tensors = np.zeros((ROWS, 2000))
    assert all(np.shares_memory(row, tensors) for row in ad.Dataset.from_tensor_slices(tensors).shuffle(seed=1))


def test_rows_of_objects_in_another_order_are_each_readers_own() -> None:
    ds = ad.Dataset.from_tensor_slices(np.array([[number] for number in range(ROWS)] + [[1, 2]], object))
    for _ in range(2):
        for row in ds.shuffle(seed=1):
            assert row[-1] >= 0
            row[-1] = -1
