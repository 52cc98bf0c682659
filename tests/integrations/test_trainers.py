"""PyTorch's training loops of others: the batches across a stop and a resume are those of one long run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from tests.integrations.distributed import run_processes

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]

EPOCHS, STEPS = 3, 5


class Stopped(Exception):
    """The run is killed."""


def rows() -> ad.Dataset[Any]:
    return ad.Dataset.range(14).shuffle(seed=1).map(lambda x: {"x": float(x), "labels": float(x)})


def batches() -> ad.Dataset[Any]:
    return rows().batch(3)


def expected(epochs: int = EPOCHS) -> list[list[float]]:
    ds = batches()
    return [batch["x"].tolist() for _ in range(epochs) for batch in ds]


# StatefulDataLoader


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_dataloader_goes_on_at_the_batch(workers: int) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    def loader() -> Any:
        return StatefulDataLoader(batches().to_torch(), batch_size=None, num_workers=workers)

    for stop in range(STEPS + 1) if workers == 0 else (3, STEPS):
        stopped = loader()
        found = [batch["x"].tolist() for batch in stopped]
        elements = iter(stopped)
        found += [next(elements)["x"].tolist() for _ in range(stop)]
        if stop == STEPS:
            assert next(elements, None) is None
        other = loader()
        other.load_state_dict(stopped.state_dict())
        while len(found) < EPOCHS * STEPS:
            found += [batch["x"].tolist() for batch in other]
        assert found == expected()


# Hugging Face


def hf_trainer(folder: Path, seen: list[list[float]], stop: int, batched: bool) -> Any:
    """Return a Trainer that saves after `stop` steps and is killed with that."""
    import torch
    import transformers
    from torch.utils.data import DataLoader

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            seen.append(x.tolist())
            return {"loss": ((self.layer(x.float()[:, None])[:, 0] - labels.float()) ** 2).mean()}

    class OfBatches(transformers.Trainer):
        def get_train_dataloader(self) -> Any:
            return self.accelerator.prepare(DataLoader(self.train_dataset, batch_size=None))

    class Stop(transformers.TrainerCallback):
        def on_save(self, *_: Any, **__: Any) -> None:
            if stop:
                raise Stopped

    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=3,
        save_strategy="steps" if stop else "no",
        save_steps=stop or 500,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    kind, data = (OfBatches, batches()) if batched else (transformers.Trainer, rows())
    return kind(model=Model(), args=arguments, train_dataset=data.to_torch(), callbacks=[Stop()])


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("stop", [3, 5, 7, 12])
def test_a_trainer_of_hugging_face_goes_on_at_the_batch(batched: bool, stop: int, tmp_path: Path) -> None:
    seen: list[list[float]] = []
    with pytest.raises(Stopped):
        hf_trainer(tmp_path, seen, stop, batched).train()
    assert len(seen) == stop
    hf_trainer(tmp_path, seen, 0, batched).train(resume_from_checkpoint=True)
    assert seen == expected()


# accelerate


def test_accelerate_keeps_the_state_of_a_loader_in_its_checkpoints(tmp_path: Path) -> None:
    import accelerate

    for stop in (1, STEPS, STEPS + 2):
        seen: list[list[float]] = []
        for resume in (False, True):
            accelerator = accelerate.Accelerator(cpu=True)
            loader = batches().loader()
            accelerator.register_for_checkpointing(loader)
            if resume:
                accelerator.load_state(str(tmp_path))
            steps(loader, seen, EPOCHS * STEPS if resume else stop)
            accelerator.save_state(str(tmp_path))
        assert seen == expected()


def steps(loader: Any, seen: list[list[float]], most: int) -> None:
    """Note the batches that come, up to `most` of them in all."""
    for epoch in range(loader.epoch, EPOCHS):
        loader.set_epoch(epoch)
        for batch in loader:
            seen.append(batch["x"].tolist())
            if len(seen) == most:
                return


def test_accelerate_prepares_a_dataloader_of_a_dataset() -> None:
    import accelerate
    from torch.utils.data import DataLoader

    loader = accelerate.Accelerator(cpu=True).prepare(DataLoader(batches().to_torch(), batch_size=None))
    assert [batch["x"].tolist() for _ in range(EPOCHS) for batch in loader] == expected()


def test_accelerate_takes_a_stateful_dataloader(tmp_path: Path) -> None:
    import accelerate
    from torch.utils.data import DataLoader

    def prepared() -> tuple[Any, Any]:
        configuration = accelerate.DataLoaderConfiguration(use_stateful_dataloader=True, dispatch_batches=False)
        accelerator = accelerate.Accelerator(cpu=True, dataloader_config=configuration)
        return accelerator, accelerator.prepare(DataLoader(batches().to_torch(), batch_size=None))

    accelerator, loader = prepared()
    elements = iter(loader)
    seen = [next(elements)["x"].tolist() for _ in range(2)]
    accelerator.save_state(str(tmp_path))
    accelerator, loader = prepared()
    accelerator.load_state(str(tmp_path))
    assert seen + [batch["x"].tolist() for batch in loader] == expected(1)


def test_processes_of_accelerate_have_each_element_once(tmp_path: Path) -> None:
    run_processes(2, "accelerate_shares.py", str(tmp_path))


def test_processes_of_lightning_go_on_where_each_of_them_was(tmp_path: Path) -> None:
    run_processes(2, "lightning_shares.py", str(tmp_path), "5", "7")
