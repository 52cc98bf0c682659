"""One of two processes in which Lightning trains: both stop within an epoch, and go on where each of them was."""

from __future__ import annotations

import contextlib
import gc
import sys
import warnings

import pytorch_lightning as lightning
import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group: imported later, by DDP, it keeps Gloo's threads alive

import asyncdata as ad

warnings.simplefilter("ignore")

FOLDER = sys.argv[1]
STEPS = 5


class Stopped(Exception):
    """The run is killed."""


class Model(lightning.LightningModule):
    def __init__(self, stop):
        super().__init__()
        self.stop, self.seen = stop, []
        self.layer = torch.nn.Linear(1, 1)

    def train_dataloader(self):
        return ad.Dataset.range(30).shuffle(seed=1).shard().batch(3).loader()

    def training_step(self, batch, _):
        self.seen.append(batch.tolist())
        return self.layer(batch.float()[:, None]).mean()

    def on_train_batch_end(self, *_):
        if self.stop and self.trainer.global_step == self.stop:
            self.trainer.save_checkpoint(f"{FOLDER}/stopped.ckpt")
            raise Stopped

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def train(stop=0, resume=None):
    model = Model(stop)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        max_epochs=3, accelerator="cpu", devices=2, strategy="ddp", enable_checkpointing=False, **quiet
    )
    with contextlib.suppress(Stopped):
        trainer.fit(model, ckpt_path=resume)
    return model.seen


for stop in map(int, sys.argv[2:]):
    seen = train(stop) + train(resume=f"{FOLDER}/stopped.ckpt")
    ds = ad.Dataset.range(30).shuffle(seed=1).shard(2, dist.get_rank()).batch(3)
    assert seen == [batch.tolist() for _ in range(3) for batch in ds], (stop, dist.get_rank(), seen)
    dist.barrier()
gc.collect()  # Lightning's models of DDP, which can wait forever for Gloo's threads once the group has ended
dist.destroy_process_group()
