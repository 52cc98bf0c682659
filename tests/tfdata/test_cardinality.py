"""Cardinalities of each transformation of endless, counted, empty and unknown inputs beside TensorFlow's."""

from __future__ import annotations

from typing import Any

import pytest

import asyncdata as ad
from tests.tfdata import case as cases

ENDLESS, UNKNOWN = ad.INFINITE_CARDINALITY, ad.UNKNOWN_CARDINALITY

INPUTS = {"endless": "D.counter()", "unknown": "broken()", "ten": "D.range(10)", "none": "D.range(0)"}

STEPS = (
    "map(lambda x: x)",
    "map(lambda x: x, num_parallel_calls=2)",
    "filter(lambda x: x > 3)",
    "flat_map(lambda x: D.range(3))",
    "flat_map(lambda x: D.counter())",
    "interleave(lambda x: D.range(3), cycle_length=2)",
    "batch(3)",
    "batch(3, drop_remainder=True)",
    "padded_batch(3)",
    "ragged_batch(3)",
    "batch(2).unbatch()",
    "batch(2, drop_remainder=True).unbatch()",
    "map(lambda x: x).batch(2, drop_remainder=True).unbatch()",
    "map(lambda x: x).padded_batch(4, drop_remainder=True).unbatch()",
    "map(lambda x: x).ragged_batch(4, drop_remainder=True).unbatch()",
    "map(lambda x: x).batch(4, drop_remainder=True).shard(2, 1).repeat(3).cache().prefetch(1).unbatch()",
    "window(3)",
    "window(3, shift=1, drop_remainder=True)",
    "group_by_window(lambda x: x % 2, lambda key, window: window.batch(2), 2)",
    "bucket_by_sequence_length(lambda x: 1, [2], [2, 2])",
    "apply(group_by_reducer(lambda x: x % 2, total))",
    "scan(const(0), lambda s, x: (s, x))",
    "take_while(lambda x: x < 5)",
    "unique()",
    "shuffle(3)",
    "repeat()",
    "repeat(2)",
    "repeat(0)",
    "take(3)",
    "take(-1)",
    "skip(3)",
    "shard(3, 1)",
    "enumerate()",
    "concatenate(D.range(2))",
    "concatenate(D.counter())",
    "concatenate(broken())",
    "cache()",
    "prefetch(1)",
    "ignore_errors()",
    "apply(lambda ds: D.zip(ds, D.range(4)))",
    "apply(lambda ds: D.zip(ds, D.counter()))",
    "apply(lambda ds: D.zip(ds, broken()))",
    "apply(lambda ds: D.sample_from_datasets([ds, D.counter()], weights=[0.5, 0.5]))",
    "rejection_resample(lambda x: const(0), [1.0])",
    "rejection_resample(lambda x: const(0), [1.0], [1.0])",
    "rejection_resample(lambda x: const(0), [0.5, 0.5], [0.5, 0.5])",
    "rejection_resample(lambda x: const(0), [1.0, 0.0], [1.0, 0.0])",
)

BETTER = {
    ("endless", "skip(-1)"): (0, ENDLESS),
    ("unknown", "skip(-1)"): (0, UNKNOWN),
    ("ten", "batch(2, drop_remainder=True).rebatch(3)"): (4, UNKNOWN),
    ("ten", "batch(2, drop_remainder=True).rebatch([1, 2])"): (7, UNKNOWN),
    ("endless", "apply(lambda ds: D.choose_from_datasets([ds, D.counter()], D.range(3)))"): (3, ENDLESS),
    ("ten", "apply(lambda ds: D.choose_from_datasets([ds, D.counter()], D.range(3)))"): (UNKNOWN, ENDLESS),
    ("endless", "apply(lambda ds: D.choose_from_datasets([ds, D.range(4)], D.range(3)))"): (UNKNOWN, ENDLESS),
    ("ten", "apply(lambda ds: D.sample_from_datasets([ds, D.range(4)], weights=[0.5, 0.5]))"): (14, UNKNOWN),
    ("endless", "apply(lambda ds: D.sample_from_datasets([ds, D.range(4)], [0.5, 0.5], None, True))"): (
        UNKNOWN,
        ENDLESS,
    ),
    ("endless", "interleave(lambda x: D.range(3), cycle_length=2, num_parallel_calls=2)"): (UNKNOWN, ENDLESS),
}
"""What is known better here, or not said wrongly; the last as in tf.data's sequential form."""


def count(names: dict[str, Any], source: str, step: str) -> int:
    return int(eval(f"{INPUTS[source]}.{step}", names).cardinality())


@pytest.mark.parametrize(("source", "step"), BETTER)
def test_what_is_known_better(source: str, step: str) -> None:
    assert count(cases.ours(), source, step) == BETTER[source, step][0]


@pytest.mark.parametrize("step", STEPS)
def test_what_is_told_is_true(step: str) -> None:
    """There are as many elements."""
    for source in ("ten", "none"):
        if (told := count(cases.ours(), source, step)) >= 0:
            assert sum(1 for _ in eval(f"{INPUTS[source]}.{step}", cases.ours())) == told


@pytest.mark.tensorflow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("step", STEPS)
def test_is_that_of_tensorflow_or_none_of_none(tf: Any, step: str) -> None:
    for source in INPUTS:
        ours, theirs = count(cases.ours(), source, step), count(cases.theirs(tf), source, step)
        assert ours == theirs or (source == "none" and (ours, theirs) == (0, UNKNOWN))


@pytest.mark.tensorflow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("source", "step"), BETTER)
def test_what_tensorflow_says_instead(tf: Any, source: str, step: str) -> None:
    assert count(cases.theirs(tf), source, step) == BETTER[source, step][1]
