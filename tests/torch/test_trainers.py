"""The drop-in in trainers: the batches that PyTorch's own gives there, and Lightning resumes at the batch."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader

from asyncdata import ResumeError
from asyncdata.torch import DataLoader
from tests.torch.datasets import Numbers, Stream, seed

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


def as_tensor(samples: list[Any]) -> torch.Tensor:
    return torch.tensor([sample[0] for sample in samples])


@pytest.mark.parametrize("workers", [0, 2])
def test_lightning_resumes_a_stream_of_which_it_reads_a_batch_ahead(workers: int, tmp_path: Path) -> None:
    def batches(steps: int, **how: bool) -> list[list[int]]:
        loader = DataLoader[Any](Stream(), 2, num_workers=workers, collate_fn=as_tensor)
        return lightning_batches(loader, steps, tmp_path, **how)

    whole = batches(16)
    for stop in (2, 7, 9):
        assert batches(stop, save=True) + batches(16, load=True) == whole, stop


def test_accelerate_prepares_it_as_pytorchs_own() -> None:
    accelerate = pytest.importorskip("accelerate")
    found: list[Any] = []
    for kind in (TorchLoader, DataLoader):
        seed()
        loader = accelerate.Accelerator(cpu=True).prepare(kind(Numbers(), 2, shuffle=True))
        found.append([batch.tolist() for _ in range(2) for batch in loader])
    assert found[0] == found[1]


class Stopped(Exception):
    """A training run that ends in the middle, as if it had been killed."""


def hugging_face_batches(kind: Any, folder: Path, found: list[list[int]], stop: int, prepare: bool = True) -> Any:
    """Return a Trainer whose loader is of a kind; it saves after `stop` steps, and is killed then."""
    transformers = pytest.importorskip("transformers")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, x: torch.Tensor) -> Any:
            found.append(x.tolist())
            return {"loss": self.layer(x[:, None].float()).mean()}

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self) -> Any:
            loader = kind(Numbers(), 2, shuffle=True, collate_fn=collate)
            return self.accelerator.prepare(loader) if prepare else loader

    class Stop(transformers.TrainerCallback):
        def on_save(self, *_: Any, **__: Any) -> None:
            raise Stopped

    quiet: dict[str, Any] = {"report_to": [], "disable_tqdm": True, "use_cpu": True, "seed": 3}
    saving: dict[str, Any] = {"save_strategy": "steps", "save_steps": stop} if stop else {"save_strategy": "no"}
    arguments = transformers.TrainingArguments(str(folder), num_train_epochs=2, **quiet, **saving)
    return Trainer(Model(), arguments, train_dataset=Numbers(), callbacks=[Stop()])


def collate(samples: list[int]) -> dict[str, torch.Tensor]:
    return {"x": torch.tensor(samples)}


def test_hugging_face_gives_the_batches_that_it_gives_with_pytorchs_own_and_resumes_at_the_batch(
    tmp_path: Path,
) -> None:
    whole: list[list[int]] = []
    hugging_face_batches(TorchLoader, tmp_path / "whole", whole, 0).train()
    for stop in (2, 8):
        found: list[list[int]] = []
        folder = tmp_path / str(stop)
        with pytest.raises(Stopped):
            hugging_face_batches(DataLoader, folder, found, stop).train()
        hugging_face_batches(DataLoader, folder, found, 0).train(resume_from_checkpoint=True)
        assert found == whole, stop


def test_hugging_face_does_not_resume_a_loader_that_is_not_prepared_with_other_batches(tmp_path: Path) -> None:
    whole: list[list[int]] = []
    hugging_face_batches(DataLoader, tmp_path / "whole", whole, 0, prepare=False).train()
    for stop, words in ((2, None), (8, "epoch 1 cannot be resumed .* RandomSampler draws .*accelerator.prepare")):
        found: list[list[int]] = []
        folder = tmp_path / str(stop)
        with pytest.raises(Stopped):
            hugging_face_batches(DataLoader, folder, found, stop, prepare=False).train()
        again = hugging_face_batches(DataLoader, folder, found, 0, prepare=False)
        with nullcontext() if words is None else pytest.raises(ResumeError, match=words):
            again.train(resume_from_checkpoint=True)
        assert found == (whole if words is None else whole[:stop])


def test_accelerate_resumes_at_the_batch_with_the_state_of_a_loader_that_is_not_prepared(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    seed()
    whole = [batch.tolist() for loader in [TorchLoader(Numbers(), 2, shuffle=True)] for _ in "ab" for batch in loader]
    for stop in (2, 8):
        seed()
        found: list[list[int]] = []
        for most in (stop, len(whole)):
            accelerator, loader = accelerate.Accelerator(cpu=True), DataLoader(Numbers(), 2, shuffle=True)
            accelerator.register_for_checkpointing(loader)
            if found:
                seed(9)
                accelerator.load_state(str(tmp_path))
            read_until(most, loader, found)
            accelerator.save_state(str(tmp_path))
        assert found == whole, stop


def read_until(most: int, loader: DataLoader[Any], found: list[list[int]]) -> None:
    """Note the batches of two epochs, until there are so many."""
    for _ in range(loader.epoch, 2):
        for batch in loader:
            found.append(batch.tolist())
            if len(found) == most:
                return
