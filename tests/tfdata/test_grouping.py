"""Transformations that group elements or carry a state, beside TensorFlow's own, where it is installed."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncdata as ad

pytestmark = [pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]

few = settings(max_examples=30, deadline=None)
numbers = st.lists(st.integers(0, 9), max_size=25)


@pytest.fixture(scope="module")
def tf() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("tensorflow", exc_type=ImportError)


def both(tf: Any, values: list[int]) -> tuple[Any, Any]:
    """The same numbers as our dataset and as TensorFlow's."""
    return ad.Dataset.from_iterable(values), tf.data.Dataset.from_tensor_slices(tf.constant(values, tf.int64))


def listed(ds: Any) -> list[Any]:
    return [np.asarray(element).tolist() for element in ds.as_numpy_iterator()]


def same(tf: Any, values: list[int], build: Any) -> None:
    ours, theirs = both(tf, values)
    assert listed(build(ours)) == listed(build(theirs))


@few
@given(
    values=numbers,
    size=st.integers(1, 5),
    shift=st.sampled_from([None, 1, 2, 6]),
    stride=st.integers(1, 3),
    drop=st.booleans(),
)
def test_window(tf: Any, values: list[int], size: int, shift: int | None, stride: int, drop: bool) -> None:
    same(tf, values, lambda ds: ds.window(size, shift, stride, drop).flat_map(lambda window: window.batch(100)))
    ours, theirs = both(tf, values)
    assert len(ours.window(size, shift, stride, drop)) == len(theirs.window(size, shift, stride, drop))


@few
@given(values=numbers, size=st.integers(1, 4), drop=st.booleans(), shape=st.sampled_from([None, [9]]))
def test_padded_batch(tf: Any, values: list[int], size: int, drop: bool, shape: Any) -> None:
    ours, theirs = both(tf, values)
    ours = ours.map(lambda x: np.full(x, x)).padded_batch(size, shape, -1, drop)
    theirs = theirs.map(lambda x: tf.fill([x], x)).padded_batch(size, shape, np.int64(-1), drop)
    assert listed(ours) == listed(theirs)


@few
@given(values=numbers)
def test_scan_take_while_and_unique(tf: Any, values: list[int]) -> None:
    same(tf, values, lambda ds: ds.scan(np.int64(0), lambda state, x: (state + x, state * x)))
    same(tf, values, lambda ds: ds.take_while(lambda x: x < 8))
    same(tf, values, lambda ds: ds.unique())


@few
@given(values=numbers, size=st.integers(1, 5), by_key=st.booleans())
def test_group_by_window(tf: Any, values: list[int], size: int, by_key: bool) -> None:
    how: dict[str, Any] = {"window_size_func": lambda key: size + key} if by_key else {"window_size": size}
    same(tf, values, lambda ds: ds.group_by_window(lambda x: x % 3, lambda key, window: window.batch(2), **how))


@few
@given(values=numbers, bounded=st.booleans(), drop=st.booleans())
def test_bucket_by_sequence_length(tf: Any, values: list[int], bounded: bool, drop: bool) -> None:
    ours, theirs = both(tf, values)
    how = {"pad_to_bucket_boundary": bounded, "drop_remainder": drop}
    ours = ours.map(lambda x: np.full(x, x)).bucket_by_sequence_length(len, [3, 6, 10], [3, 2, 1, 4], **how)
    theirs = theirs.map(lambda x: tf.fill([x], x)).bucket_by_sequence_length(
        lambda row: tf.shape(row)[0], [3, 6, 10], [3, 2, 1, 4], **how
    )
    assert listed(ours) == listed(theirs)
