"""Batches cut anew, ragged ones, classes and keys beside TensorFlow's own, where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncdata as ad

pytestmark = [pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(0, 30),
    size=st.integers(1, 7),
    sizes=st.integers(1, 9) | st.lists(st.integers(1, 9), min_size=1, max_size=3),
    drop=st.booleans(),
)
def test_rebatch_gives_what_tensorflow_gives(tf: Any, rows: int, size: int, sizes: Any, drop: bool) -> None:
    theirs = tf.data.Dataset.range(rows).batch(size).rebatch(sizes, drop_remainder=drop)
    ours = ad.Dataset.range(rows).batch(size).rebatch(sizes, drop_remainder=drop)
    assert [batch.tolist() for batch in ours] == [batch.tolist() for batch in theirs.as_numpy_iterator()]


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 5), max_size=12),
    size=st.integers(1, 5),
    drop=st.booleans(),
    dtype=st.sampled_from(["int32", "int64"]),
)
def test_ragged_batch_gives_what_tensorflow_gives(
    tf: Any, lengths: list[int], size: int, drop: bool, dtype: str
) -> None:
    def theirs() -> Any:
        ds = tf.data.Dataset.from_tensor_slices(tf.constant(lengths, tf.int64)).map(tf.range)
        return ds.ragged_batch(size, drop, getattr(tf, dtype))

    ds = ad.Dataset.from_iterable(lengths).map(np.arange).ragged_batch(size, drop, dtype)
    found = [(batch.values.tolist(), batch.row_splits.tolist(), batch.row_splits.dtype.name) for batch in ds]
    expected = [(b.values.numpy().tolist(), b.row_splits.numpy().tolist(), b.row_splits.dtype.name) for b in theirs()]
    assert found == expected


@settings(max_examples=20, deadline=None)
@given(elements=st.lists(st.integers(-9, 9), max_size=20), keys=st.integers(1, 4))
def test_group_by_reducer_gives_what_tensorflow_gives(tf: Any, elements: list[int], keys: int) -> None:
    def reducer(kind: Any, zero: Any) -> Any:
        return kind(
            lambda key: (zero, zero), lambda state, x: (state[0] * 3 + x, state[1] + 1), lambda a, b: a * 100 + b
        )

    theirs = tf.data.Dataset.from_tensor_slices(tf.constant(elements, tf.int64)).apply(
        tf.data.experimental.group_by_reducer(
            lambda x: x % keys, reducer(tf.data.experimental.Reducer, tf.constant(0, tf.int64))
        )
    )
    ours = ad.Dataset.from_iterable(elements).group_by_reducer(lambda x: x % keys, reducer(ad.Reducer, 0))
    assert list(ours) == [int(x) for x in theirs.as_numpy_iterator()]


@pytest.mark.parametrize("initial", [None, [0.7, 0.2, 0.1]])
@pytest.mark.parametrize("target", [[1 / 3, 1 / 3, 1 / 3], [0.5, 0.0, 0.5]])
def test_rejection_resample_gives_classes_as_often_as_tensorflow(tf: Any, initial: Any, target: list[float]) -> None:
    """Not the same elements, but shares that are as near to those that were asked for."""
    classes = np.random.default_rng(1).choice(3, 12_000, p=[0.7, 0.2, 0.1])

    def shares(ds: Any) -> list[float]:
        found = np.bincount([int(label) for label, _ in ds], minlength=3)
        return (found / found.sum()).tolist()

    theirs = tf.data.Dataset.from_tensor_slices(classes.astype(np.int32)).rejection_resample(
        lambda x: x, target, initial, seed=1
    )
    ours = ad.Dataset.from_tensor_slices(classes).rejection_resample(lambda x: x, target, initial, seed=1)
    for one, other, want in zip(shares(ours), shares(theirs), target, strict=True):
        assert abs(one - want) < 0.04
        assert abs(other - want) < 0.04
