"""Checkpoints of others keep the place of each process in the data beside the model."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from tests.integrations.distributed import ENVIRONMENT, PROGRAMS, run_processes
from tests.ports import reserved_ports


def seen(folder: Path, name: str, ranks: int) -> list[list[list[int]]]:
    return [json.loads((folder / f"{name}-{rank}.json").read_text()) for rank in range(ranks)]


@pytest.mark.torch
def test_a_distributed_checkpoint_keeps_the_place_of_each_process(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run_processes(2, "distributed_checkpoint.py", str(tmp_path), "first", "same")
    first, rest = seen(tmp_path, "first", 2), seen(tmp_path, "same", 2)
    for rank in range(2):
        share = ad.Dataset.range(40).shuffle(seed=1).shard(2, rank).map(int).batch(3)
        assert first[rank] + rest[rank] == [batch.tolist() for batch in share]
    run_processes(1, "distributed_checkpoint.py", str(tmp_path), "fewer")
    (alone,) = seen(tmp_path, "fewer", 1)
    assert sorted(x for share in [*first, alone] for batch in share for x in batch) == [*range(40)]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_distributed_checkpoint_of_one_process(tmp_path: Path) -> None:
    dcp = pytest.importorskip("torch.distributed.checkpoint")

    def loader() -> Any:
        return ad.Dataset.range(9).shuffle(seed=1).batch(2).loader()

    stopped = loader()
    found = [batch.tolist() for _, batch in zip(range(2), stopped, strict=False)]
    dcp.save({"data": stopped}, checkpoint_id=tmp_path, no_dist=True)
    for drawn in range(2):  # the loader that goes on may have been used
        went_on = loader()
        list(zip(range(drawn), went_on, strict=False))
        dcp.load({"data": went_on}, checkpoint_id=tmp_path, no_dist=True)
        assert found + [batch.tolist() for batch in went_on] == [batch.tolist() for batch in loader()]


class ByRank:
    """A loader with the state of torchtitan's `ParallelAwareDataloader`: one pickled state for each rank."""

    def __init__(self, loader: Any, rank: int, ranks: int) -> None:
        self.loader, self.name, self.ranks = loader, f"dp_rank_{rank}", ranks

    def state_dict(self) -> dict[str, Any]:
        return {self.name: pickle.dumps(self.loader.state_dict()), "world_size": self.ranks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state["world_size"] == self.ranks
        self.loader.load_state_dict(pickle.loads(state[self.name]))


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_loader_meets_the_contract_of_torchtitan(tmp_path: Path) -> None:
    dcp = pytest.importorskip("torch.distributed.checkpoint")

    def loader(rank: int) -> Any:
        rows = ad.Dataset.range(40).shuffle(seed=1).shard(2, rank).map(lambda x: np.arange(1 + x % 5))
        return rows.pack_sequences(8, fields=("labels",)).batch(2).loader()

    for rank in range(2):
        stopped, went_on = loader(rank), loader(rank)
        assert isinstance(stopped, dcp.stateful.Stateful)
        found = [next(iter(stopped))["labels"].tolist()]
        dcp.save({"dataloader": ByRank(stopped, rank, 2)}, checkpoint_id=tmp_path / str(rank), no_dist=True)
        dcp.load({"dataloader": ByRank(went_on, rank, 2)}, checkpoint_id=tmp_path / str(rank), no_dist=True)
        found += [batch["labels"].tolist() for batch in went_on]
        assert found == [batch["labels"].tolist() for batch in loader(rank)]


@pytest.mark.integrations
@pytest.mark.filterwarnings("ignore")
def test_the_dataloader_of_torchtitan_keeps_the_place_of_each_rank(tmp_path: Path) -> None:
    titan: Any = pytest.importorskip("torchtitan.components.dataloader", exc_type=ImportError)
    dcp: Any = pytest.importorskip("torch.distributed.checkpoint")

    def loader(rank: int) -> Any:
        rows = ad.Dataset.range(40).shuffle(seed=1).shard(2, rank).map(lambda x: np.arange(1 + x % 5))
        pairs = rows.pack_sequences(8, fields=("labels",)).map(lambda row: ({"input": row["input_ids"]}, row["labels"]))
        return titan.ParallelAwareDataloader(pairs.batch(2).to_torch(), rank, 2, batch_size=None)

    for rank in range(2):
        stopped, went_on = loader(rank), loader(rank)
        found = [next(iter(stopped))[1].tolist()]
        dcp.save({"dataloader": stopped}, checkpoint_id=tmp_path / str(rank), no_dist=True)
        dcp.load({"dataloader": went_on}, checkpoint_id=tmp_path / str(rank), no_dist=True)
        found += [labels.tolist() for _, labels in went_on]
        assert found == [labels.tolist() for _, labels in loader(rank)]


@pytest.mark.integrations
def test_orbax_keeps_the_place_of_each_process(tmp_path: Path) -> None:
    needs_orbax()
    with reserved_ports(1) as (port,):
        command = [sys.executable, PROGRAMS / "orbax_shares.py", tmp_path, f"localhost:{port}"]
        pipe = subprocess.PIPE
        running = [subprocess.Popen([*command, str(rank)], env=ENVIRONMENT, stderr=pipe) for rank in range(2)]
        told = [process.communicate(timeout=170)[1].decode() for process in running]
    assert [process.returncode for process in running] == [0, 0], "\n".join(told)


@pytest.mark.integrations
def test_orbax_keeps_a_loader_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    """In a process of its own: other tests fork, which JAX does not allow."""
    needs_orbax()
    command = [sys.executable, PROGRAMS / "orbax_loader.py", tmp_path]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr


def needs_orbax() -> None:
    if find_spec("orbax") is None:
        pytest.skip("Orbax is not installed")


def test_without_orbax_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from asyncdata.integrations import orbax

    orbax.kinds.cache_clear()
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    with pytest.raises(ad.MissingDependencyError, match="pip install orbax-checkpoint"):
        orbax.save_args(ad.Dataset.range(3).iterate())
