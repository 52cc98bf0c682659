"""Keras trains from a dataset with each of its backends; each in a process, as a process has one backend."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import asyncdata as ad

pytestmark = pytest.mark.integrations

PROGRAM = Path(__file__).parent / "programs" / "keras_loop.py"


@pytest.mark.parametrize(
    "words", ["torch", "jax", "jax ahead", pytest.param("tensorflow", marks=pytest.mark.tensorflow)]
)
def test_each_epoch_comes_whole_and_a_stopped_training_goes_on_at_the_batch(words: str) -> None:
    backend, *arguments = words.split()
    pytest.importorskip(backend)
    root = PROGRAM.parents[3]
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, PROGRAM, *arguments], env=environment, capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode == 0, done.stderr


def test_an_unknown_number_of_batches_is_refused_with_advice() -> None:
    with pytest.raises(ad.PlanError, match=r"assert_cardinality\(n\)"):
        ad.Dataset.range(9).filter(bool).batch(2).to_keras()


VARYING = """
import numpy as np, keras, asyncdata as ad
from keras import layers
rows = [(np.ones((n % 5 + 1, 6), np.float32), np.float32([n])) for n in range(12)]
ds = ad.Dataset.range(12).map(lambda n: rows[n]).padded_batch(3)
data = ds.to_keras()
assert [spec.shape.as_list() for spec in data.element_spec] == [[None, None, 6], [None, 1]], data.element_spec
assert [inputs.shape[1] for inputs, _ in data] == [3, 5, 4, 5] == [inputs.shape[1] for inputs, _ in ds]
model = keras.Sequential([layers.GRU(3), layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
model.fit(data, epochs=2, verbose=0)
assert model.predict(ds.map(lambda inputs, _: inputs).to_keras(), verbose=0).shape == (12, 1)
"""


@pytest.mark.tensorflow
def test_batches_of_tensorflow_may_be_padded_to_different_sizes() -> None:
    pytest.importorskip("tensorflow")
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "PYTHONPATH": str(PROGRAM.parents[3])}
    command = [sys.executable, "-c", VARYING]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr
