"""Sources in memory beside TensorFlow's own, where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncdata as ad

pytestmark = [pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]


@pytest.mark.parametrize(
    "tensors",
    [
        [1, 2, 3],
        [[1], [2, 3]],
        [[1], [[2, 3]]],
        [[[1.0, 2.0]], [[3.0, 4.0]]],
        [(1, [1.0]), (2, [])],
        [{"a": 1, "b": [2]}, {"b": [3, 4], "a": 5}],
    ],
    ids=str,
)
def test_from_list_gives_what_tensorflow_gives(tf: Any, tensors: Any) -> None:
    theirs, ours = tf.data.experimental.from_list(tensors), ad.Dataset.from_list(tensors)
    for their, our in zip(theirs.as_numpy_iterator(), ours.as_numpy_iterator(), strict=True):
        np.testing.assert_equal(our, their)
    shapes = tf.nest.map_structure(lambda spec: spec.shape, theirs.element_spec)
    found = tf.nest.map_structure(lambda spec: tf.TensorShape(spec.shape), ours.element_spec)
    assert tf.nest.flatten(tf.nest.map_structure(str, shapes)) == tf.nest.flatten(tf.nest.map_structure(str, found))


@pytest.mark.parametrize(
    "tensors", [[], (1, 2), [1, (2, 3)], [{"a": 1}, {"b": 1}], [1, 2.5], [(1, 2), (1, 2, 3)]], ids=str
)
def test_from_list_refuses_what_tensorflow_refuses(tf: Any, tensors: Any) -> None:
    with pytest.raises(Exception, match=".+"):
        tf.data.experimental.from_list(tensors)
    with pytest.raises(ad.PlanError):
        ad.Dataset.from_list(tensors)


@pytest.mark.parametrize("anew", [None, False, True])
def test_random_repeats_its_numbers_when_tensorflow_does(tf: Any, anew: bool | None) -> None:
    """Not the same numbers, but the same type and range, and again or not in the next iteration."""

    def told(source: Any) -> tuple[Any, ...]:
        ds = source.random(seed=3, rerandomize_each_iteration=anew).take(200)
        first, second = ([int(x) for x in ds.as_numpy_iterator()] for _ in range(2))
        dtype = next(iter(ds.as_numpy_iterator())).dtype
        return first == second, dtype, min(first) >= 0, 1 << 31 < max(first) < 1 << 32, int(ds.cardinality())

    assert told(ad.Dataset) == told(tf.data.Dataset)
