"""The drop-in in trainers: the batches that PyTorch's own gives there, and Lightning resumes at the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader

from asyncdata.torch import DataLoader
from tests.torch.datasets import Numbers, seed

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


def lightning_batches(loader: Any, steps: int, folder: Path, load: bool = False, save: bool = False) -> list[list[int]]:
    """Train so many steps; return the batches. With `load` from the checkpoint that `save` wrote."""
    lightning = pytest.importorskip("pytorch_lightning")
    found: list[list[int]] = []

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            found.append(batch.tolist())
            return self.layer(batch[:, None].float()).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    trainer = lightning.Trainer(max_steps=steps, accelerator="cpu", default_root_dir=folder, **quiet)
    file = str(folder / "training.ckpt")
    trainer.fit(Model(), loader, ckpt_path=file if load else None)
    if save:
        trainer.save_checkpoint(file)
    return found


def test_lightning_resumes_at_the_batch(tmp_path: Path) -> None:
    seed()
    whole = lightning_batches(TorchLoader(Numbers(), 2, shuffle=True), 14, tmp_path)
    for stop in (2, 6, 9):
        seed()
        found = lightning_batches(DataLoader(Numbers(), 2, shuffle=True), stop, tmp_path, save=True)
        seed(9)
        found += lightning_batches(DataLoader(Numbers(), 2, shuffle=True), 14, tmp_path, load=True)
        assert found == whole, stop


def test_accelerate_prepares_it_as_pytorchs_own() -> None:
    accelerate = pytest.importorskip("accelerate")
    found: list[Any] = []
    for kind in (TorchLoader, DataLoader):
        seed()
        loader = accelerate.Accelerator(cpu=True).prepare(kind(Numbers(), 2, shuffle=True))
        found.append([batch.tolist() for _ in range(2) for batch in loader])
    assert found[0] == found[1]
