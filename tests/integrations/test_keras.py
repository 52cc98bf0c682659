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
