"""One of some processes: PyTorch's distributed checkpoints keep the model and the place in the data of each.

    distributed_checkpoint.py FOLDER RUN ...

The run `first` saves after some steps; others, with as many processes or fewer, go on and say what they saw.
"""

from __future__ import annotations

import json
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import asyncdata as ad

warnings.simplefilter("ignore")
FOLDER = sys.argv[1]


def loader():
    return ad.Dataset.range(40).shuffle(seed=1).shard().map(int).batch(3).loader()


def first(model, data):
    torch.nn.init.constant_(model.weight, 5)
    batches = iter(data)
    seen = [next(batches).tolist() for _ in range(2 + rank)]  # the second had come further
    done = dcp.async_save({"model": model, "data": data}, checkpoint_id=f"{FOLDER}/step")
    next(batches)  # not in the checkpoint, even while it is being written
    done.result()
    return seen


def other(model, data):
    dcp.load({"model": model, "data": data}, checkpoint_id=f"{FOLDER}/step")
    assert model.weight.tolist() == [[5, 5]]
    seen = [batch.tolist() for batch in data]
    assert data.epoch == 1
    return seen


dist.init_process_group("gloo")
rank = dist.get_rank()
for name in sys.argv[2:]:
    run = first if name == "first" else other
    seen = run(torch.nn.Linear(2, 1), loader())
    with open(f"{FOLDER}/{name}-{rank}.json", "w") as file:
        json.dump(seen, file)
dist.destroy_process_group()
