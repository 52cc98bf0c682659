"""One of two processes, whose batches differ in number: both take as many steps, and none waits for the other."""

from __future__ import annotations

import json

import torch
import torch.distributed as dist

import asyncdata as ad

dist.init_process_group("gloo")
rank = dist.get_rank()


def number(x):
    if x == 7:
        raise ValueError(x)
    return x


def loader():
    mine = ad.Dataset.range(21).shuffle(seed=1).shard().filter(lambda x: rank or x % 3).map(number)
    return mine.batch(2).loader()


def read(batches, most=99, alone=False):
    """Return the batches of an epoch: None where there is none, and "failed" for the element of one rank that fails."""
    found = []
    while len(found) - found.count("failed") < most:
        try:
            batch = next(batches)
        except StopIteration:
            break
        except ValueError:
            found.append("failed")
            continue
        found.append(None if batch is None else batch.tolist())
        if not alone:
            dist.all_reduce(torch.zeros(()))  # what every rank must take part in
    return found


def elements(*parts):
    return sorted(x for part in parts for batch in part if type(batch) is list for x in batch)


def epoch(number):
    own = loader()
    own.set_epoch(number)
    return elements(read(iter(own), alone=True))


whole = loader()
for turn in range(2):
    found = read(whole.even_steps())
    steps = [torch.zeros((), dtype=torch.int64) for _ in range(2)]
    dist.all_gather(steps, torch.tensor(sum(batch != "failed" for batch in found)))
    assert steps[0] == steps[1], steps
    assert elements(found) == epoch(turn), (rank, found)
    assert (found[-1] is None) == (rank == 0), (rank, found)

for taken in range(1, 6):
    stopped, resumed = loader(), loader()
    found = read(stopped.even_steps(), taken)
    resumed.load_state_dict(json.loads(json.dumps(stopped.state_dict())))
    assert elements(found, read(resumed.even_steps())) == epoch(0), (rank, taken)
    assert elements(read(resumed.even_steps())) == epoch(1), (rank, taken)

other = loader()
other.set_epoch(3 * rank)
try:
    other.even_steps()
    raise AssertionError
except ad.PlanError:
    pass
dist.barrier()
dist.destroy_process_group()
