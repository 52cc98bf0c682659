"""Training that may be killed at any step: it saves every two steps, and goes on from the last checkpoint.

    killed_training.py TRAINER FOLDER

It prints each batch that it has trained on, and goes on when a line comes.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path

import torch

import asyncdata as ad

warnings.simplefilter("ignore")
EPOCHS, EVERY = 2, 2


def batches():
    return ad.Dataset.range(14).shuffle(seed=1).map(lambda x: {"x": x, "labels": x}).batch(2)


def note(x):
    print(json.dumps(x.tolist()), flush=True)
    sys.stdin.readline()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x, labels):
        note(x)
        return {"loss": ((self.layer(x.float()[:, None])[:, 0] - labels.float()) ** 2).mean()}


def plain(folder):
    train(folder, batches().loader())


def drop_in(folder):
    from asyncdata.torch import DataLoader

    train(folder, DataLoader([{"x": x, "labels": x} for x in range(14)], 2, shuffle=True))


def train(folder, loader):
    file, step = folder / "saved.pt", 0
    model = Model()
    torch.manual_seed(1)
    if file.exists():
        saved = torch.load(file)
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["data"])
        step = saved["step"]
    for epoch in range(loader.epoch, EPOCHS):
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(epoch)
        for batch in loader:
            model(**batch)["loss"].backward()
            step += 1
            if step % EVERY == 0:
                state = {"model": model.state_dict(), "data": loader.state_dict(), "step": step}
                torch.save(state, folder / "partial.pt")
                os.replace(folder / "partial.pt", file)


def lightning(folder):
    import pytorch_lightning as pl

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def training_step(self, batch, _):
            return self.model(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    saving = pl.callbacks.ModelCheckpoint(folder, "{step}", every_n_train_steps=EVERY, save_top_k=-1, save_last=True)
    trainer = pl.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[saving], default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(Module(), batches().loader(), ckpt_path="last" if list(folder.glob("last*.ckpt")) else None)


def hugging_face(folder):
    import transformers

    class OfBatches(transformers.Trainer):
        def get_train_dataloader(self):
            return self.accelerator.prepare(torch.utils.data.DataLoader(self.train_dataset, batch_size=None))

    arguments = transformers.TrainingArguments(
        str(folder), num_train_epochs=EPOCHS, save_steps=EVERY, report_to=[], use_cpu=True, disable_tqdm=True
    )
    trainer = OfBatches(Model(), arguments, train_dataset=batches().to_torch())
    trainer.train(resume_from_checkpoint=any(folder.glob("checkpoint-*")))


if __name__ == "__main__":
    trainers = (plain, drop_in, lightning, hugging_face)
    {trainer.__name__: trainer for trainer in trainers}[sys.argv[1]](Path(sys.argv[2]))
