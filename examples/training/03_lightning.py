"""Lightning saves in the middle of an epoch, is stopped, and resumes at the next batch."""

from __future__ import annotations

import contextlib
import logging
import tempfile
import warnings

import numpy as np
import pytorch_lightning as lightning
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

import asyncdata as ad

warnings.simplefilter("ignore")  # Lightning's advice
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

STOP = 20


def pipeline():
    x = np.linspace(0, 1, 200, dtype=np.float32)[:, None]
    return ad.Dataset.from_tensor_slices((x, 2 * x)).shuffle(seed=1).batch(16)


class Model(lightning.LightningModule):
    def __init__(self, seen, stops):
        super().__init__()
        self.seen, self.stops = seen, stops
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, _):
        if self.stops and self.global_step == STOP:
            raise KeyboardInterrupt  # the machine is taken away
        x, y = batch
        self.seen.append(x[:, 0].tolist())
        return torch.nn.functional.mse_loss(self.layer(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def train(folder, seen, stops=False, resume=None):
    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ModelCheckpoint(folder, filename="last", every_n_train_steps=STOP)],
    )
    with contextlib.suppress(SystemExit):
        trainer.fit(Model(seen, stops), pipeline().loader(), ckpt_path=resume)


if __name__ == "__main__":
    folder, whole, seen = tempfile.mkdtemp(), [], []
    train(f"{folder}/whole", whole)
    train(folder, seen, stops=True)
    print("batches before the stop:", len(seen))
    train(folder, seen, resume=f"{folder}/last.ckpt")
    print("batches in all:", len(seen))
    print("the same batches as in one run:", seen == whole)
