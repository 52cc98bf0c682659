"""Wrong arguments: an error where the method is called, also where TensorFlow raises later or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from tests.tfdata import case as cases

REFUSED = (
    "D.range()",
    "D.range(1, 5, 0)",
    "D.range(2.5)",
    "D.from_tensor_slices(3)",
    "D.from_tensor_slices(D.range(3))",
    "D.from_tensor_slices(([1, 2], [1]))",
    "D.from_tensor_slices(())",
    "D.from_tensor_slices([[1], [2, 3]])",
    "from_list([])",
    'from_list([1, "a"])',
    "from_list([1, (1, 2)])",
    "D.from_generator([1, 2])",
    'D.from_generator(lambda: [1], output_signature="int64")',
    'D.from_generator(lambda: [(1, 2)], ["int64", "int64"])',
    'D.from_generator(lambda: [(1, 2)], ("int64", "int64"), ((),))',
    'D.from_generator(lambda n: [n], "int64", args=5)',
    'D.range(3, output_type="int23")',
    "D.list_files(3)",
    "D.zip()",
    "D.zip(1, 2)",
    "D.zip([D.range(2), D.range(2)])",
    "D.zip(D.range(2), datasets=(D.range(2),))",
    "D.from_generator(lambda: [1], output_shapes=())",
    "D.sample_from_datasets([])",
    'D.sample_from_datasets([D.range(2), D.from_tensor_slices({"a": [1]})])',
    'D.choose_from_datasets([D.range(2), D.from_tensor_slices({"a": [1]})], D.range(2))',
    "D.sample_from_datasets([D.range(2)], weights=[0.5, 0.5])",
    "D.choose_from_datasets([], D.range(2))",
    "D.choose_from_datasets([D.range(2)], 3)",
    "D.range(3).map(3)",
    "D.range(3).map(None)",
    "D.range(3).map(lambda x, y: x)",
    "D.zip(D.range(3), D.range(3)).map(lambda x: x)",
    "D.range(3).map(lambda x: x, num_parallel_calls=0)",
    "D.range(3).map(lambda x: x, num_parallel_calls=-2)",
    "D.range(3).filter(lambda x, y: True)",
    "D.range(3).flat_map(lambda x, y: D.range(x))",
    "D.range(3).interleave(lambda x: D.range(x), cycle_length=0)",
    "D.range(3).interleave(lambda x: D.range(x), cycle_length=-2)",
    "D.range(3).interleave(lambda x: D.range(x), block_length=0)",
    "D.range(3).interleave(lambda x: D.range(x), cycle_length=2, num_parallel_calls=5)",
    "D.range(3).batch(0)",
    "D.range(3).batch(-1)",
    'D.range(3).batch("2")',
    "D.range(3).batch(2.5)",
    "D.range(3).batch(2, num_parallel_calls=0)",
    "D.range(3).batch(2, 2)",
    'D.range(3).batch(2, drop_remainder="False")',
    "D.range(3).window(2, drop_remainder=3)",
    'D.range(3).padded_batch(2, drop_remainder="no")',
    "D.range(3).unbatch()",
    "D.zip((D.range(3), D.range(3).batch(2))).unbatch()",
    "D.from_tensors((array([[1], [2], [3]]), array([1, 2]))).unbatch()",
    "rows([1], [2, 3]).padded_batch(2, padding_values=0.5)",
    "D.zip((rows([1]), rows([2]))).padded_batch(2, padded_shapes=3)",
    "D.range(3).padded_batch(0)",
    "D.range(3).padded_batch(2, padded_shapes=[-2])",
    "D.range(3).padded_batch(2, padded_shapes=([2], [2]))",
    "D.from_tensor_slices([[1, 2, 3]]).padded_batch(2, padded_shapes=[2])",
    'D.from_tensor_slices({"a": [[1, 2, 3]], "b": [1]}).padded_batch(2, padded_shapes={"a": [2], "b": []})',
    "D.range(3).ragged_batch(0)",
    'D.range(3).ragged_batch(2, row_splits_dtype="float32")',
    "D.range(3).rebatch(2)",
    "D.range(3).rebatch([1, 2])",
    "D.zip((D.range(3).batch(2), D.range(3))).rebatch(2)",
    "D.range(3).batch(2).rebatch(0)",
    "D.range(3).batch(2).rebatch(-1)",
    "D.range(3).batch(2).rebatch([])",
    "D.range(3).window(0)",
    "D.range(3).window(-1)",
    "D.range(3).window(2, shift=0)",
    "D.range(3).window(2, stride=0)",
    "D.range(3).group_by_window(lambda x: x, lambda key, w: w)",
    "D.range(3).group_by_window(lambda x: x, lambda key, w: w, 2, lambda key: 2)",
    "D.range(3).group_by_window(lambda x: x, lambda key, w: w, 0)",
    "D.range(3).group_by_window(lambda x: x, lambda w: w, 2)",
    "D.range(3).bucket_by_sequence_length(lambda x: x, [2], [2])",
    "D.range(3).bucket_by_sequence_length(lambda x: x, 5, [1, 2])",
    "D.range(3).bucket_by_sequence_length(lambda x: x, [2], [2, 0])",
    "D.range(3).bucket_by_sequence_length(lambda x: x, [3, 2], [2, 2, 2])",
    "D.range(3).shuffle(0)",
    "D.range(3).shuffle(-1)",
    "D.range(3).repeat(-2)",
    "D.range(3).take(-2)",
    'D.range(3).take("1")',
    "D.range(3).skip(-2)",
    "D.range(3).shard(0, 0)",
    "D.range(3).shard(2, 2)",
    "D.range(3).shard(2, -1)",
    'D.range(3).enumerate("a")',
    "D.range(3).concatenate(3)",
    "D.range(3).concatenate(D.zip(D.range(3), D.range(3)))",
    'D.range(3).concatenate(D.from_tensor_slices({"a": [1]}))',
    "D.range(3).concatenate(D.from_tensor_slices([1.5]))",
    'D.from_tensor_slices([1.5]).concatenate(D.from_tensor_slices(["a"]))',
    "D.sample_from_datasets([D.range(2), D.from_tensor_slices([1.5])])",
    "D.choose_from_datasets([D.range(2), D.from_tensor_slices([1.5])], D.range(2))",
    "D.range(3).prefetch(-2)",
    'D.range(3).prefetch("a")',
    "D.range(3).apply(3)",
    "D.range(3).apply(lambda ds: 3)",
    'D.range(3).with_options({"deterministic": False})',
    "D.range(3).scan(const(0), 3)",
    "D.range(3).scan(const(0), lambda s: s)",
    "D.range(3).take_while(3)",
    "D.range(3).take_while(lambda x, y: x)",
    "D.range(3).reduce(const(0), 3)",
    "D.range(3).reduce(const(0), lambda s: s)",
    "D.range(3).apply(assert_cardinality(-3))",
    "D.range(3).apply(assert_cardinality(2))",
    'D.from_tensor_slices({"a": [1, 2]}).apply(pad_to_cardinality(1))',
    "D.range(3).rejection_resample(lambda x: x, [0.5], [0.5, 0.5])",
    "D.range(3).rejection_resample(lambda x: x, [])",
    "D.range(3).rejection_resample(lambda x: x, [-1.0, 2.0])",
    "D.range(3).apply(group_by_reducer(lambda x: x, 3))",
    "D.range(3).cache(3)",
)

LATER_THERE = (
    "D.range(3).batch(2, num_parallel_calls=0)",  # and hangs
    'D.range(3).ragged_batch(2, row_splits_dtype="float32")',
    "D.range(3).batch(2).rebatch(0)",
    "D.range(3).batch(2).rebatch(-1)",
    "D.range(3).group_by_window(lambda x: x, lambda key, w: w, 0)",
    "D.range(3).repeat(-2)",
    "D.range(3).take(-2)",
    "D.range(3).skip(-2)",
    "D.range(3).apply(assert_cardinality(-3))",
    "D.range(3).apply(assert_cardinality(2))",
    "D.range(3).rejection_resample(lambda x: x, [0.5], [0.5, 0.5])",
    "D.range(3).rejection_resample(lambda x: x, [])",
    "D.range(3).rejection_resample(lambda x: x, [-1.0, 2.0])",
)
"""What TensorFlow takes, and fails on when it is iterated, or never."""


@pytest.mark.parametrize("code", REFUSED)
def test_is_refused_where_it_is_called(code: str) -> None:
    with pytest.raises(ad.PlanError):
        eval(code, cases.ours())


@pytest.mark.tensorflow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", [code for code in REFUSED if code not in LATER_THERE])
def test_tensorflow_refuses_it_too(tf: Any, code: str) -> None:
    with pytest.raises((ValueError, TypeError, AttributeError, IndexError, tf.errors.InvalidArgumentError)):
        eval(code, cases.theirs(tf))


@pytest.mark.tensorflow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", LATER_THERE)
def test_what_tensorflow_takes(tf: Any, code: str) -> None:
    eval(code, cases.theirs(tf))


@pytest.mark.tensorflow
def test_dtypes_of_tensorflow_are_taken(tf: Any) -> None:
    spec = ad.TensorSpec((), np.int32)
    assert ad.Dataset.range(3, output_type=tf.int32).element_spec == spec == ad.TensorSpec((), tf.int32)
    assert ad.Dataset.from_generator(lambda: [1], tf.int32, tf.TensorShape([])).element_spec == spec
    assert ad.TensorSpec((), tf.string) == ad.TensorSpec((), str)
    assert ad.experimental.CsvDataset("a", [tf.int32, tf.string]).element_spec == (spec, ad.TensorSpec((), str))
    with pytest.raises(ad.PlanError, match=r"is made of asyncdata.TensorSpec, the value is TensorSpec\(.*tf.int32"):
        ad.Dataset.from_generator(lambda: [1], output_signature=tf.TensorSpec((), tf.int32))


@pytest.mark.parametrize(
    "reader", [ad.TextLineDataset, ad.TFRecordDataset, lambda x: ad.FixedLengthRecordDataset(x, 3)]
)
def test_what_are_no_paths_are_refused(reader: Any) -> None:
    with pytest.raises(ad.PlanError, match="must be a path, several, or a dataset of paths, got None"):
        reader(None)
