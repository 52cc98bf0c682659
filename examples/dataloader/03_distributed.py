"""Two processes train one model (DDP), each on the share that a DistributedSampler gives it.

The only line that is asyncdata's is the import; `--torch` takes PyTorch's DataLoader, for the same batches.
"""

from __future__ import annotations

import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group: imported later, by DDP, it keeps Gloo's threads alive
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler, TensorDataset

if "--torch" in sys.argv:
    from torch.utils.data import DataLoader
else:
    from asyncdata.torch import DataLoader


def main(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    train(rank)
    dist.destroy_process_group()  # when the model is gone: DDP's can wait forever for Gloo's threads after it


def train(rank):
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.linspace(0, 1, 100)[:, None]
    dataset = TensorDataset(x, 2 * x)
    sampler = DistributedSampler(dataset, seed=1)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        losses, first = [], []
        for inputs, targets in loader:
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            first.append(round(inputs[0].item() * 99))
        shares = [None, None]
        dist.all_gather_object(shares, first)
        if rank == 0:
            print(f"epoch {epoch}: first rows {shares}, loss {sum(losses) / len(losses):.4f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(main, (folder,), nprocs=2)
