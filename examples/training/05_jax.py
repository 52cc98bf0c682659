"""A JAX loop that is stopped in the middle of an epoch, and resumes at the next batch."""

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
    loader, weight, losses = pipeline().loader(device=jax.devices()[0]), jnp.float32(0), []
    if os.path.exists(path):
        with open(path) as file:
            saved = json.load(file)
        weight = jnp.float32(saved["weight"])
        loader.load_state_dict(saved["loader"])
    for epoch in range(loader.epoch, EPOCHS):
        loader.set_epoch(epoch)
        for x, y in loader:
            weight, loss = step(weight, x, y)
            losses.append(float(loss))
            if len(losses) == most:
                with open(path, "w") as file:
                    json.dump({"weight": float(weight), "loader": loader.state_dict()}, file)
                return losses
    return losses


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    runs = [train(f"{folder}/stopped", most) for most in (5, 20, 1000)]
    print("batches of each run:", [len(losses) for losses in runs])
    seen = [loss for losses in runs for loss in losses]
    print("the same losses as in one run:", seen == train(f"{folder}/whole", 1000))
