"""Rows that lie in arrays: elements and batches are what they are without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncdata as ad

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
