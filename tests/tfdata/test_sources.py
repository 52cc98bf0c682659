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


def as_lists(element: Any) -> Any:
    """Return an element of either side as lists."""
    return element.to_list() if hasattr(element, "to_list") else np.asarray(element).tolist()


def test_rows_of_ragged_tensors_are_those_of_tensorflow(tf: Any) -> None:
    values, splits = np.arange(5), np.array([0, 2, 2, 5])
    theirs = tf.data.Dataset.from_tensor_slices(tf.RaggedTensor.from_row_splits(values, splits))
    ours = ad.Dataset.from_tensor_slices(ad.Ragged(values, splits))
    assert [as_lists(one) for one in ours] == [as_lists(one) for one in theirs]
    their, our = theirs.ragged_batch(2), ours.ragged_batch(2)
    assert [as_lists(one) for one in our] == [as_lists(one) for one in their]


@pytest.mark.parametrize("how", [{"shape": (2, None)}, {"shape": (None, None), "ragged_rank": 1}, {"ragged_rank": 1}])
def test_generators_give_ragged_tensors_as_those_of_tensorflow(tf: Any, how: dict[str, Any]) -> None:
    def given(api: Any, source: Any, make: Any) -> list[Any]:
        elements = [([1], [[1], [2, 3]]), ([2], [[], [4]])]
        signature = (api.TensorSpec((1,), np.int32), api.RaggedTensorSpec(dtype=np.int32, **how))
        ds = source.from_generator(lambda: ((a, make(b)) for a, b in elements), output_signature=signature)
        return [(as_lists(a), as_lists(b)) for a, b in ds]

    theirs = given(tf, tf.data.Dataset, lambda rows: tf.ragged.constant(rows, np.int32))
    assert given(ad, ad.Dataset, lambda rows: rows) == theirs


@pytest.mark.parametrize("anew", [None, False, True])
def test_random_repeats_its_numbers_when_tensorflow_does(tf: Any, anew: bool | None) -> None:
    """Not the same numbers, but the same type and range, and again or not in the next iteration."""

    def told(source: Any) -> tuple[Any, ...]:
        ds = source.random(seed=3, rerandomize_each_iteration=anew).take(200)
        first, second = ([int(x) for x in ds.as_numpy_iterator()] for _ in range(2))
        dtype = next(iter(ds.as_numpy_iterator())).dtype
        return first == second, dtype, min(first) >= 0, 1 << 31 < max(first) < 1 << 32, int(ds.cardinality())

    assert told(ad.Dataset) == told(tf.data.Dataset)
