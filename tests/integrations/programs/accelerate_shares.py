"""One of two processes that accelerate trains in: it prints the elements that it gets, in each of two epochs."""

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
if sys.argv[1] == "loader":
    loader = accelerator.prepare(rows().shard().batch(3).loader())
else:
    loader = accelerator.prepare(DataLoader(rows().to_torch(), batch_size=3))
epochs = [[x for batch in loader for x in batch.tolist()] for _ in range(2)]
shares = [None, None]
dist.all_gather_object(shares, epochs)
for first, second in zip(*shares, strict=True):
    assert sorted(first + second) == list(range(24)), shares
    assert len(first) == 12
accelerator.end_training()
