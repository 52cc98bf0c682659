"""Mixtures beside TensorFlow's own, where it is installed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncdata as ad
from tests.running import results

pytestmark = [pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]


def delivered(tf: Any, ds: Any) -> list[Any]:
    """All elements of TensorFlow's dataset, "failed" in the places of those that did."""
    found: list[Any] = []
    elements = ds.as_numpy_iterator()
    while True:
        try:
            found.append(int(next(elements)))
        except StopIteration:
            return found
        except tf.errors.InvalidArgumentError:
            found.append("failed")


@settings(max_examples=100)
@given(
    counts=st.lists(st.integers(0, 6), min_size=2, max_size=3),
    choices=st.lists(st.sampled_from([0, 1, 0, 1, 2, -1]), max_size=30),
    stop=st.booleans(),
)
def test_choose_from_datasets_gives_what_tensorflow_gives(
    tf: Any, counts: list[int], choices: list[int], stop: bool
) -> None:
    def build(source: Any, chosen: Any) -> Any:
        inputs = [source.range(10 * place, 10 * place + count) for place, count in enumerate(counts)]
        return source.choose_from_datasets(inputs, chosen, stop)

    theirs = build(tf.data.Dataset, tf.data.Dataset.from_tensor_slices(tf.constant(choices, tf.int64)))
    ours = results(build(ad.Dataset, ad.Dataset.from_iterable(choices)))
    assert [x if isinstance(x, int) else "failed" for x in ours] == delivered(tf, theirs)


@pytest.mark.parametrize("weights", [[0.5, 0.3, 0.2], [1.0, 0.0, 3.0]])
def test_sample_from_datasets_draws_as_often_as_tensorflow(tf: Any, weights: list[float]) -> None:
    """Not the same draws, but as many of each dataset: within five standard deviations of the difference."""

    def counts(source: Any) -> list[int]:
        inputs = [source.from_tensors(name).repeat() for name in range(3)]
        names = [int(name) for name in source.sample_from_datasets(inputs, weights, seed=1).take(5_000)]
        return [names.count(name) for name in range(3)]

    for ours, theirs in zip(counts(ad.Dataset), counts(tf.data.Dataset), strict=True):
        assert abs(ours - theirs) <= 250
