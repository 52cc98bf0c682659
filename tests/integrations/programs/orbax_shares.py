"""One of two processes that JAX knows: Orbax keeps the model's weights and the place in the data of each."""

from __future__ import annotations

import os
import sys
import warnings

import jax
import numpy as np
import orbax.checkpoint as ocp

import asyncdata as ad
from asyncdata.integrations.orbax import restore_args, save_args

warnings.simplefilter("ignore")
FOLDER, ADDRESS, RANK = sys.argv[1], sys.argv[2], int(sys.argv[3])


def batches():
    return ad.Dataset.range(40).shuffle(seed=1).shard().batch(3)


jax.config.update("jax_platforms", "cpu")
jax.distributed.initialize(ADDRESS, 2, RANK)
expected = [batch.tolist() for batch in batches()]
stopped, weights = batches().iterate(), np.arange(3.0)
seen = [next(stopped).tolist() for _ in range(2 + RANK)]  # the second had come further
with ocp.CheckpointManager(FOLDER) as manager:
    model = ocp.args.StandardSave({"weights": weights})
    manager.save(7, args=ocp.args.Composite(model=model, data=save_args(stopped)))
    next(stopped)  # not in the checkpoint, even while it is being written
    manager.wait_until_finished()
    went_on = batches().iterate()
    model = ocp.args.StandardRestore({"weights": weights})
    found = manager.restore(manager.latest_step(), args=ocp.args.Composite(model=model, data=restore_args(went_on)))
assert found.data is went_on
assert found.model["weights"].tolist() == weights.tolist()
seen += [batch.tolist() for batch in went_on]
assert seen == expected, (RANK, seen)
assert {"asyncdata-0-of-2.json", "asyncdata-1-of-2.json"} <= {*os.listdir(f"{FOLDER}/7/data")}
