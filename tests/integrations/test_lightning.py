"""Lightning trains from a loader, is stopped and goes on from its checkpoint: the batches are those of one long run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from tests.marks import first_by_default

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]

EPOCHS, STEPS = 3, 5

Make = Callable[[], ad.Dataset[Any]]


def sized() -> ad.Dataset[Any]:
    return ad.Dataset.range(14).shuffle(seed=1).map(lambda x: {"x": float(x)}).batch(3)


def unsized() -> ad.Dataset[Any]:
    return ad.Dataset.range(28).shuffle(seed=1).filter(lambda x: x % 2 == 0).map(lambda x: {"x": float(x)}).batch(3)


class Stopped(Exception):
    """The run is killed."""


def on_device() -> ad.Dataset[Any]:
    return unsized().prefetch_to_device("cpu")


def train(
    make: Make, folder: Path, stop: int = 0, last_epoch: int = -1, resume: bool = False, **arguments: Any
) -> list[list[float]]:
    """Train, and return the batches that were trained on; save after `stop` batches, or an epoch, and end with that."""
    import pytorch_lightning as lightning
    import torch

    seen: list[list[float]] = []

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            assert type(batch["x"]) is torch.Tensor
            seen.append(batch["x"].tolist())
            return self.layer(batch["x"].float()[:, None]).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

    class Stop(lightning.Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if stop and trainer.global_step == stop:
                trainer.save_checkpoint(folder / "stopped.ckpt")
                raise Stopped

        def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.current_epoch == last_epoch:
                trainer.save_checkpoint(folder / "stopped.ckpt")
                raise Stopped

    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=[Stop()],
        **{"enable_checkpointing": False, **arguments},
    )
    with contextlib.suppress(Stopped):
        trainer.fit(Model(), make().loader(), ckpt_path=folder / "stopped.ckpt" if resume else None)
    return seen


def expected(make: Make) -> list[list[float]]:
    ds = make()
    return [batch["x"].tolist() for _ in range(EPOCHS) for batch in ds]


@pytest.mark.parametrize("make", [sized, unsized])
def test_a_run_sees_each_epoch_in_its_order(make: Make, tmp_path: Path) -> None:
    assert train(make, tmp_path) == expected(make)


@pytest.mark.parametrize("stop", range(1, EPOCHS * STEPS))
@pytest.mark.parametrize("make", [sized, unsized, on_device])
def test_a_run_that_is_stopped_goes_on_at_the_batch(make: Make, stop: int, tmp_path: Path) -> None:
    before = train(make, tmp_path, stop=stop)
    assert [*before, *train(make, tmp_path, resume=True)] == expected(make)


@pytest.mark.parametrize("epoch", range(EPOCHS - 1))
@pytest.mark.parametrize("make", [sized, unsized])
def test_a_run_that_was_saved_at_the_end_of_an_epoch_goes_on_with_the_next(
    make: Make, epoch: int, tmp_path: Path
) -> None:
    before = train(make, tmp_path, last_epoch=epoch)
    assert len(before) == STEPS * (epoch + 1)
    assert [*before, *train(make, tmp_path, resume=True)] == expected(make)


@pytest.mark.parametrize("make", [sized, unsized])
def test_a_run_of_a_part_of_each_epoch_goes_on_at_the_batch(make: Make, tmp_path: Path) -> None:
    """With a limit Lightning knows how many there are, and reads none ahead."""
    ds, limit = make(), 3
    whole = [batch["x"].tolist() for _ in range(EPOCHS) for batch in ds.take(limit)]
    for stop in (1, 2, 3, 4, 7):
        before = train(make, tmp_path, stop=stop, limit_train_batches=limit)
        assert [*before, *train(make, tmp_path, resume=True, limit_train_batches=limit)] == whole


@pytest.mark.parametrize("make", [sized, unsized])
def test_a_run_that_reloads_its_loader_sees_each_epoch_in_its_order(make: Make, tmp_path: Path) -> None:
    reload: dict[str, Any] = {"reload_dataloaders_every_n_epochs": 1}
    assert train(make, tmp_path, **reload) == expected(make)
    for stop in (2, 5, 8):
        before = train(make, tmp_path, stop=stop, **reload)
        assert [*before, *train(make, tmp_path, resume=True, **reload)] == expected(make)


@pytest.mark.parametrize(("mode", "stop"), first_by_default([("max_size", 3), ("max_size", 2), ("max_size_cycle", 2)]))
def test_a_loader_that_had_ended_does_not_begin_again_within_the_epoch(mode: str, stop: int, tmp_path: Path) -> None:
    import pytorch_lightning as pl
    import torch
    from pytorch_lightning.utilities import CombinedLoader

    def trained(stop: int, path: Path | None) -> list[Any]:
        class Model(pl.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(1, 1)

            def training_step(self, batch: Any, index: int) -> Any:
                parts = batch[0] if isinstance(batch, tuple) else batch
                seen.append([None if part is None else part.tolist() for part in parts])
                return self.layer(torch.ones(1)).sum()

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), 0.1)

        class Stop(pl.Callback):
            def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
                if trainer.global_step == stop:
                    trainer.save_checkpoint(tmp_path / "stopped.ckpt")
                    raise InterruptedError

        seen: list[Any] = []
        loaders = [ad.Dataset.range(count).batch(2).loader() for count in (10, 4)]
        trainer = pl.Trainer(
            max_epochs=2,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
            callbacks=[Stop()],
        )
        with contextlib.suppress(InterruptedError):
            trainer.fit(Model(), CombinedLoader(loaders, mode), ckpt_path=path)
        return seen

    whole = trained(0, None)
    first = trained(stop, None)
    assert first + trained(0, tmp_path / "stopped.ckpt") == whole
