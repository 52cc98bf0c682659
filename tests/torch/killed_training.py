"""A training run that may be killed at any time: `python killed_training.py FOLDER WORKERS`. Prints a line a step."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from torch.utils.data import Dataset, WeightedRandomSampler

from asyncdata.torch import DataLoader


class Rows(Dataset[torch.Tensor]):
    """The number of a row, and the process that made it."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.tensor([number, os.getpid()])


def loader_of_rows(workers: int) -> DataLoader[torch.Tensor]:
    """Return a loader whose sampler draws from the global generator."""
    torch.manual_seed(7)
    return DataLoader(Rows(), 4, sampler=WeightedRandomSampler([1.0, 2.0] * 20, 40), num_workers=workers)


def train(folder: Path, workers: int) -> None:
    """Read two epochs; a step is printed before it is in the state."""
    loader = loader_of_rows(workers)
    state = folder / "state"
    step = 0
    if state.exists():
        saved = json.loads(state.read_text())
        step = saved["step"]
        loader.load_state_dict(saved["loader"])
    while step < 20:
        for rows in loader:
            print(step, os.getpid(), *rows.flatten().tolist(), flush=True)
            step += 1
            (folder / "new").write_text(json.dumps({"step": step, "loader": loader.state_dict()}))
            (folder / "new").replace(state)


if __name__ == "__main__":
    train(Path(sys.argv[1]), int(sys.argv[2]))
