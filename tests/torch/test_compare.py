"""`asyncdata compare`: the table of both loaders, and the page."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from asyncdata.__main__ import main
from asyncdata.cli import compare
from asyncdata.cli.compare import Measured, digest, measured, memory_of_all, remarks_of
from asyncdata.executors.process.shared_memory import SharedMemory
from asyncdata.torch.worker_process import LoaderWorker

pytestmark = pytest.mark.torch

TRAIN = """
import os
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler

class Rows:
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return {"x": torch.rand(3), "name": f"row {index}"}

class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.rand(9))

class Restless(Rows):
    def __getitem__(self, index):
        return int.from_bytes(os.urandom(4), "little")

loader = DataLoader(Rows(), 4, shuffle=True)
restless = DataLoader(Restless(), 4)
batches = DataLoader(Rows(), batch_sampler=BatchSampler(RandomSampler(range(24)), 5, True))
stream = DataLoader(Stream(), 2, drop_last=True)
single = DataLoader(Rows(), batch_size=None)
empty = DataLoader([], 2)
workers = DataLoader(Rows(), 4, num_workers=2)

def build():
    return loader
"""


RANKS = """
import torch
import torch.distributed
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def loader():
    torch.distributed.init_process_group("gloo")
    dataset = TensorDataset(torch.arange(100))
    return DataLoader(dataset, 4, sampler=DistributedSampler(dataset), num_workers=1)
"""


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", os.fspath(Path(__file__).resolve().parents[2]))
    path = tmp_path / "a_training.py"
    path.write_text(TRAIN)
    return path


@pytest.mark.parametrize("name", ["loader", "batches", "stream", "single", "build"])
def test_both_give_the_same_batches(train: Path, name: str) -> None:
    theirs, ours = [measured(f"{train}:{name}", side, 0.01) for side in compare.SIDES]
    assert (len(theirs.digests), theirs.digests) == (compare.CHECKED, ours.digests)
    assert ours.batches
    assert ours.change
    assert ours.memory > 1e6


def test_the_pace_is_taken_when_all_workers_have_started(train: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = list[bool]()
    wait = LoaderWorker.wait_for_start

    def waiting(worker: LoaderWorker) -> None:
        wait(worker)
        begun.append(worker.has_started())

    monkeypatch.setattr(LoaderWorker, "wait_for_start", waiting)
    measured(f"{train}:workers", "asyncdata", 0.01)
    assert begun == [True, True]


def turn(digests: list[int], change: str = "more workers") -> Measured:
    return Measured(digests, 0.1, 10, 1.0, 0.5, 1000, change)


def test_what_to_change_depends_on_which_batches_differ() -> None:
    same, other = turn([1, 2]), turn([1, 3])
    assert "are equal" in str(remarks_of({"torch": [same, same], "asyncdata": [same, same]}))
    assert "batch 1 differs from PyTorch's" in str(remarks_of({"torch": [same, same], "asyncdata": [other, same]}))
    assert "one run of PyTorch's" in str(remarks_of({"torch": [same, other], "asyncdata": [same, same]}))


def test_a_slower_loader_is_not_recommended_for_its_pace() -> None:
    same = turn([1, 2])
    slow = same._replace(batches=5)
    assert "DataLoader is faster here; to resume" in str(remarks_of({"torch": [same] * 2, "asyncdata": [slow] * 2}))
    assert "faster here" not in str(remarks_of({"torch": [slow] * 2, "asyncdata": [same] * 2}))


def test_memory_counts_what_is_shared_once_whether_it_is_mapped_or_not() -> None:
    size = 64 << 20
    segment, before = SharedMemory.create(size), memory_of_all()
    segment.write(0, memoryview(bytes(size)))
    written = memory_of_all()
    assert segment.map[0] + sum(segment.map[:: mmap.PAGESIZE]) == 0
    read = memory_of_all()
    segment.close()
    assert 0.9 * size < written - before < 1.2 * size
    assert abs(read - written) < 0.2 * size
    assert read - memory_of_all() > 0.8 * size


def test_what_is_in_memory_twice_is_told() -> None:
    same = turn([1, 2])
    assert "memory" not in dict(remarks_of({"torch": [same] * 2, "asyncdata": [same] * 2}))
    held = same._replace(held="500 MB of the dataset")
    assert dict(remarks_of({"torch": [same] * 2, "asyncdata": [held] * 2}))["memory"] == "500 MB of the dataset"


def test_a_digest_counts_all_of_a_batch() -> None:
    big = torch.zeros(100_000)
    late = big.clone()
    late[77_777] = 1
    values: list[Any] = [big, late, big.double(), big[None], [big], (big,), {"x": big}, {"y": big}, np.zeros(3), "a", 1]
    assert len({digest(value) for value in values}) == len(values)
    assert digest({"x": [big, "a"]}) == digest({"x": [big.clone(), "a"]})


@pytest.mark.parametrize(
    ("name", "words"), [("Rows", "must be a DataLoader"), ("empty", "has no batch"), ("none", "its DataLoaders are")]
)
def test_what_cannot_be_compared_is_refused(
    train: Path, name: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", f"{train}:{name}", "--side", "torch"]) == 2
    assert words in capsys.readouterr().err


def test_ranks_meet_at_another_port_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []

    def run(command: list[str], env: dict[str, str], **_: Any) -> subprocess.CompletedProcess[str]:
        seen.append((env.get("MASTER_PORT", ""), env.get("TORCHELASTIC_USE_AGENT_STORE", "")))
        return subprocess.CompletedProcess(command, 0, json.dumps(turn([1])))

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    for number, port in enumerate(("29500", "29500", "")):
        monkeypatch.setenv("MASTER_PORT", port)
        assert compare.measured_apart("train.py:loader", "torch", 1.0, number) == turn([1])
    assert seen == [("29501", "False"), ("29502", "False"), ("", "True")]


@pytest.mark.slow
def test_ranks_of_torchrun_compare_their_loaders(tmp_path: Path) -> None:
    file = tmp_path / "ranks.py"
    file.write_text(RANKS)
    given = ["torch.distributed.run", "--nproc-per-node", "2", "-m", "asyncdata", "compare", f"{file}:loader"]
    environment = {**os.environ, "PYTHONPATH": os.fspath(Path(__file__).resolve().parents[2])}
    command = [sys.executable, "-m", *given, "--seconds", "0.1"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment, timeout=240)
    assert done.stdout.count("the first 20 are equal") == 2


@pytest.mark.slow
@pytest.mark.parametrize(("name", "status"), [("loader", 0), ("restless", 1)])
def test_the_table_and_the_page(
    train: Path, name: str, status: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "TURNS", 1)
    page = train.with_name("page.html")
    assert main(["compare", f"{train}:{name}", "--seconds", "0.1", "--html", str(page)]) == status
    told = capsys.readouterr().out
    assert ("the first 20 are equal" in told) == (status == 0)
    for text in (told, page.read_text()):
        assert all(word in text for word in ("pace", "first batch", "memory of all processes", "processor time"))
