"""ignore_errors, assert_cardinality and pad_to_cardinality beside TensorFlow's own, where it is installed."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncdata as ad

pytestmark = [pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def tf() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("tensorflow", exc_type=ImportError)


@settings(max_examples=50)
@given(values=st.lists(st.sampled_from([1.0, 2.0, 0.0, float("nan")]), max_size=20))
def test_ignore_errors_drops_what_tensorflow_drops(tf: Any, values: list[float]) -> None:
    def ours(x: float) -> float:
        if not np.isfinite(1 / np.float64(x)):
            raise ValueError
        return x

    theirs = tf.data.Dataset.from_tensor_slices(tf.constant(values, tf.float64))
    theirs = theirs.map(lambda x: tf.debugging.check_numerics(1 / x, "bad") * 0 + x).ignore_errors()
    with np.errstate(divide="ignore"):
        found = list(ad.Dataset.from_iterable(values).map(ours).ignore_errors())
    assert found == list(theirs.as_numpy_iterator())


@pytest.mark.parametrize("expected", [3, 5, 7])
def test_assert_cardinality_fails_where_tensorflow_fails(tf: Any, expected: int) -> None:
    def read(elements: Any, errors: tuple[type[Exception], ...]) -> tuple[list[int], bool]:
        found: list[int] = []
        try:
            found.extend(int(x) for x in elements)
        except errors:
            return found, True
        return found, False

    theirs = tf.data.Dataset.range(5).filter(lambda x: True)
    theirs = theirs.apply(tf.data.experimental.assert_cardinality(expected))
    ours = ad.Dataset.range(5).filter(lambda x: True).assert_cardinality(expected)
    assert len(ours) == int(theirs.cardinality())
    their_errors = (tf.errors.FailedPreconditionError,)
    assert read(iter(ours), (ad.StageError,)) == read(theirs.as_numpy_iterator(), their_errors)


@pytest.mark.parametrize("count", [4, 5, 9])
def test_pad_to_cardinality_pads_as_tensorflow_pads(tf: Any, count: int) -> None:
    tensors = {"x": np.arange(1, 9, dtype=np.float32).reshape(4, 2), "n": np.arange(4)}
    theirs = tf.data.Dataset.from_tensor_slices(tensors)
    theirs = theirs.apply(tf.data.experimental.pad_to_cardinality(count))
    ours = ad.Dataset.from_tensor_slices(tensors).pad_to_cardinality(count)

    def plain(element: Any) -> dict[str, Any]:
        return {name: np.asarray(part).tolist() for name, part in element.items()}

    assert list(map(plain, ours)) == list(map(plain, theirs.as_numpy_iterator()))
