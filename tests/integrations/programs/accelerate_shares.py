"""One of two processes that accelerate trains in: together they get each element once, in each of two epochs, whichever
way they read."""

from __future__ import annotations

import sys
import warnings

import accelerate
import torch.distributed as dist
from torch.utils.data import DataLoader

import asyncdata as ad

warnings.simplefilter("ignore")


def rows():
    return ad.Dataset.range(24).shuffle(seed=1)


configuration = accelerate.DataLoaderConfiguration(dispatch_batches=False)
accelerator = accelerate.Accelerator(cpu=True, dataloader_config=configuration)


def make():
    return accelerator.prepare(rows().shard().batch(3).loader())


def resumed():
    """Stop in the middle of the second epoch, and go on from a checkpoint, which has one state for both processes."""
    loader = make()
    accelerator.register_for_checkpointing(loader)
    first, second = list(loader), []
    for _, batch in zip(range(2), loader, strict=False):
        second.append(batch)
    accelerator.save_state(sys.argv[1])
    accelerator.wait_for_everyone()  # the first process writes what the other reads
    next(iter(loader))  # what comes after the checkpoint is lost with the process
    accelerator.load_state(sys.argv[1])
    return [first, second + list(loader)]


def prepared():
    loader = accelerator.prepare(DataLoader(rows().to_torch(), batch_size=3))
    return [[*loader], [*loader]]


def read():
    loader = make()
    return [[*loader], [*loader]]


for way in (read, resumed, prepared):
    epochs = [[x for batch in epoch for x in batch.tolist()] for epoch in way()]
    shares = [None, None]
    dist.all_gather_object(shares, epochs)
    for first, second in zip(*shares, strict=True):
        assert sorted(first + second) == list(range(24)), (way.__name__, shares)
        assert len(first) == 12, way.__name__
accelerator.end_training()
