"""An async PyTorch loop whose data coroutines fetch. It is killed, and resumes at the next batch."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch

import asyncdata as ad

EPOCHS = 3


async def fetch(index):
    """Stand in for a request to a slow store."""
    await asyncio.sleep(0.002)
    return {"x": np.float32([index / 100]), "y": np.float32([index / 50])}


def pipeline():
    return ad.Dataset.range(100).shuffle(seed=1).map(fetch, num_parallel_calls=20).batch(8)


async def train(path, most):
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = pipeline().loader()
    saved = load(path)
    if saved is not None:
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["loader"])
    steps = 0
    for epoch in range(loader.epoch, EPOCHS):
        loader.set_epoch(epoch)
        async for batch in loader:
            loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(epoch, *batch["x"][:, 0].tolist(), loss.item(), flush=True)
            save(path, {"model": model.state_dict(), "loader": loader.state_dict()})
            steps += 1
            if steps == most:
                os._exit(1)  # like SIGKILL: nothing is cleaned up


def load(path):
    return torch.load(path) if os.path.exists(path) else None


def save(path, state):
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)  # completely, or not at all


def run(path, most):
    command = [sys.executable, __file__, path, str(most)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.splitlines()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(train(sys.argv[1], int(sys.argv[2])))
        sys.exit()
    folder = tempfile.mkdtemp()
    runs = [run(f"{folder}/stopped", most) for most in (7, 14, 1000)]
    print("batches of each process:", [len(lines) for lines in runs])
    print(
        "the same batches and losses as in one run:",
        [line for lines in runs for line in lines] == run(f"{folder}/whole", 1000),
    )
