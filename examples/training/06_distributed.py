"""Two processes train one model (DDP), each on its share. Both are stopped, and each resumes where it was."""

from __future__ import annotations

import os
import sys
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group: imported later, by DDP, it keeps Gloo's threads alive
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel

import asyncdata as ad

EPOCHS = 3


def pipeline():
    x = np.linspace(0, 1, 200, dtype=np.float32)[:, None]
    ds = ad.Dataset.from_tensor_slices((x, 2 * x)).shuffle(seed=1)  # the same seed in all processes
    return ds.shard(drop_remainder=True).batch(16)  # the share of this process; all have equally many batches


def train(path, most):
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = pipeline().loader()
    path = f"{path}-{dist.get_rank()}"  # each process saves the state of its own share
    if os.path.exists(path):
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["loader"])
    seen = []
    for epoch in range(loader.epoch, EPOCHS):
        loader.set_epoch(epoch)
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append((x[:, 0].tolist(), loss.item()))
            if len(seen) == most:
                torch.save({"model": model.state_dict(), "loader": loader.state_dict()}, path)
                return seen
    return seen


def main(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    runs = [train(f"{folder}/stopped", most) for most in (5, 9, 1000)]
    seen = [batch for run in runs for batch in run]
    same = seen == train(f"{folder}/whole", 1000)
    shares = [None, None]
    dist.all_gather_object(shares, (same, [len(run) for run in runs], seen))
    if rank == 0:
        print("batches of each run:", [lengths for _, lengths, _ in shares])
        print("the same batches and losses as in one run:", [same for same, _, _ in shares])
        parts = [x for _, _, seen in shares for batch, _ in seen[:7] for x in batch]
        print("elements that both had in the first epoch:", len(parts) - len(set(parts)))
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(main, (tempfile.mkdtemp(),), nprocs=2)
    sys.exit()
