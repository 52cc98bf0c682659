"""Hugging Face's Trainer saves in the middle of an epoch, is stopped, and resumes at the next batch."""

from __future__ import annotations

import tempfile
import warnings

import numpy as np
import torch
from torch.utils.data import DataLoader
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

import asyncdata as ad

warnings.simplefilter("ignore")

STOP = 20


def pipeline():
    x = np.linspace(0, 1, 200, dtype=np.float32)[:, None]
    return ad.Dataset.from_tensor_slices({"x": x, "labels": 2 * x}).shuffle(seed=1).batch(16)


class Model(torch.nn.Module):
    def __init__(self, seen):
        super().__init__()
        self.seen = seen
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x, labels):
        self.seen.append(x[:, 0].tolist())
        return {"loss": torch.nn.functional.mse_loss(self.layer(x), labels)}


class BatchTrainer(Trainer):
    """A Trainer whose `train_dataset` gives batches."""

    def get_train_dataloader(self):
        return self.accelerator.prepare(DataLoader(self.train_dataset, batch_size=None))


class Stop(TrainerCallback):
    def on_save(self, arguments, state, control, **_):
        control.should_training_stop = True


def train(folder, seen, resume=False, callbacks=()):
    arguments = TrainingArguments(
        output_dir=folder, num_train_epochs=3, save_steps=STOP, report_to=[], use_cpu=True, disable_tqdm=True
    )
    trainer = BatchTrainer(Model(seen), arguments, train_dataset=pipeline().to_torch(), callbacks=[*callbacks])
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=resume)


if __name__ == "__main__":
    folder, whole, seen = tempfile.mkdtemp(), [], []
    train(f"{folder}/whole", whole)
    train(f"{folder}/stopped", seen, callbacks=[Stop()])
    print("batches before the stop:", len(seen))
    train(f"{folder}/stopped", seen, resume=True)
    print("batches in all:", len(seen))
    print("the same batches as in one run:", seen == whole)
