"""A JAX loop that is stopped in the middle of an epoch, and goes on at the batch where it was."""

from __future__ import annotations

import json
import os
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

import asyncdata as ad

EPOCHS = 3


def pipeline():
    x = np.linspace(0, 1, 200, dtype=np.float32)
    return ad.Dataset.from_tensor_slices((x, 2 * x)).shuffle(seed=1).batch(16)


@jax.jit
def step(weight, x, y):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((w * x - y) ** 2))(weight)
    return weight - 0.1 * gradient, loss


def train(path, most):
    ds, weight, losses = pipeline(), jnp.float32(0), []
    batches = ds.iterate()
    if os.path.exists(path):
        with open(path) as file:
            saved = json.load(file)
        weight = jnp.float32(saved["weight"])
        batches.load_state_dict(saved["batches"])
    while batches.epoch < EPOCHS:
        for x, y in batches:
            weight, loss = step(weight, x, y)
            losses.append(float(loss))
            if len(losses) == most:
                with open(path, "w") as file:
                    json.dump({"weight": float(weight), "batches": batches.state_dict()}, file)
                return losses
        batches = ds.iterate()
    return losses


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    runs = [train(f"{folder}/stopped", most) for most in (5, 20, 1000)]
    print("batches of each run:", [len(losses) for losses in runs])
    print(
        "the same losses as in one run:", [loss for losses in runs for loss in losses] == train(f"{folder}/whole", 1000)
    )
