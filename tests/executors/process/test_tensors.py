"""Tensors of torch travel as arrays: as large ones do, in shared memory. Where there is no torch, a stand-in serves."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from asyncdata.executors.process import shm_arena

PROGRAM = """
import pickle, torch
import asyncdata as ad

def made(number):
    return {"x": torch.full((300, 1000), number, dtype=torch.float32), "name": number}

def doubled(element):
    element["x"].numpy()[:] *= 2
    return element

if __name__ == "__main__":
    ds = ad.Dataset.range(12).map(made).map(doubled, 2, executor="process").map(doubled, 2, executor="process")
    found = list(ds)
    for number, element in enumerate(found):
        array = element["x"].numpy()
        assert type(element["x"]) is torch.Tensor and element["name"] == number
        assert array.shape == (300, 1000) and (array == 4 * number).all(), number
        assert array.flags.writeable and not array.flags.owndata, "it lies in shared memory, and is not a copy"
        array[:] = -1 - number
    assert all((element["x"].numpy() == -1 - number).all() for number, element in enumerate(found))
    print("all are whole")
"""


def test_tensors_arrive_whole_and_writable_in_shared_memory(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    if find_spec("torch") is None:
        shutil.copy(Path(__file__).with_name("torch_stand_in.py"), tmp_path / "torch.py")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    command = [sys.executable, str(program)]
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all are whole\n"


@pytest.mark.torch
def test_only_for_tensors_pickle_asks_how_they_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    plain, sparse, parameter = torch.ones(2), torch.eye(2).to_sparse(), torch.nn.Parameter(torch.ones(2))
    asked = list[Any]()
    reduced = shm_arena.reduced_tensor

    def noted(value: Any) -> Any:
        asked.append(value)
        return reduced(value)

    monkeypatch.setattr(shm_arena, "reduced_tensor", noted)
    sent = shm_arena.dumps([plain, Path("a"), {1j}, sparse, parameter, Path], None)
    assert asked[0] is plain
    assert {type(one) for one in asked} == {torch.Tensor}, "those that others are made of among them"
    found = pickle.loads(sent)
    assert torch.equal(found[0], plain)
    assert torch.equal(found[3].to_dense(), torch.eye(2))
    assert type(found[4]) is torch.nn.Parameter
    assert found[1:3] == [Path("a"), {1j}]
