"""A plain PyTorch loop that is stopped in the middle of an epoch, and resumes at the next batch."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import torch

import asyncdata as ad

EPOCHS = 3


def augment(x, y, rng):
    return x + rng.normal(scale=0.01, size=x.shape).astype(np.float32), y  # the same after a resume


def pipeline():
    x = np.linspace(0, 1, 200, dtype=np.float32)[:, None]
    ds = ad.Dataset.from_tensor_slices((x, 2 * x))
    return ds.shuffle(seed=1).map(augment, num_parallel_calls=2, rng=True, seed=2).batch(16)


def train(path, most):
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = pipeline().loader()
    if os.path.exists(path):
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["loader"])
    losses = []
    for epoch in range(loader.epoch, EPOCHS):
        loader.set_epoch(epoch)
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == most:
                torch.save({"model": model.state_dict(), "loader": loader.state_dict()}, path)
                return losses
    return losses


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    runs = [train(f"{folder}/stopped", most) for most in (5, 20, 1000)]
    print("batches of each run:", [len(losses) for losses in runs])
    seen = [loss for losses in runs for loss in losses]
    print("the same losses as in one run:", seen == train(f"{folder}/whole", 1000))
