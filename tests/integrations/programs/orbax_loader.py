"""Orbax keeps a loader in the middle of an epoch."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import orbax.checkpoint as ocp
import pytest

import asyncdata as ad
from asyncdata.integrations.orbax import restore_args, save_args

warnings.simplefilter("ignore")
FOLDER = Path(sys.argv[1])


def loader():
    return ad.Dataset.range(9).shuffle(seed=1).batch(2).loader()


stopped = loader()
found = [batch.tolist() for _, batch in zip(range(2), stopped, strict=False)]
with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
    checkpointer.save(FOLDER / "one", args=ocp.args.Composite(data=save_args(stopped)))
    went_on = loader()
    checkpointer.restore(FOLDER / "one", args=ocp.args.Composite(data=restore_args(went_on)))
    assert found + [batch.tolist() for batch in went_on] == [batch.tolist() for batch in loader()]
    (FOLDER / "one" / "data" / "asyncdata.json").unlink()
    with pytest.raises(ad.ResumeError, match=r"no state of asyncdata: was it saved with save_args"):
        checkpointer.restore(FOLDER / "one", args=ocp.args.Composite(data=restore_args(went_on)))
