#!/usr/bin/env bash
# transformers 5.24.0 with accelerate 1.15.0 and torchdata 0.11.0: a Trainer whose `get_train_dataloader` returns
# `self.accelerator.prepare(StatefulDataLoader(..., shuffle=True))` resumes in its second epoch with another order than
# the epoch had: elements come twice and others never, without an error. With PyTorch's DataLoader in the same place
# each element comes once: accelerate gives only PyTorch's own RandomSampler an order of each epoch's number.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.13.0 transformers==5.24.0 accelerate==1.15.0 torchdata==0.11.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import accelerate
import torch
import transformers
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

print("transformers", transformers.__version__, "accelerate", accelerate.__version__)
transformers.logging.set_verbosity_error()


class Stopped(Exception):
    pass


class Stop(transformers.TrainerCallback):
    def on_save(self, *args, **kwargs):
        raise Stopped


def train(kind, found, resume):
    """Train two epochs of 12 elements, 2 a step; stop after 8 steps, or resume there."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, x):
            found.extend(x.int().tolist())
            return {"loss": self.layer(x[:, None]).mean()}

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            collate = lambda samples: {"x": torch.tensor(samples, dtype=torch.float32)}
            return self.accelerator.prepare(kind(range(12), batch_size=2, shuffle=True, collate_fn=collate))

    arguments = transformers.TrainingArguments(
        kind.__name__, num_train_epochs=2, save_strategy="no" if resume else "steps", save_steps=8,
        report_to=[], disable_tqdm=True, use_cpu=True,
    )
    try:
        Trainer(Model(), arguments, train_dataset=range(12), callbacks=[Stop()]).train(resume_from_checkpoint=resume)
    except Stopped:
        pass


once = {}
for kind in (DataLoader, StatefulDataLoader):
    found = []
    train(kind, found, resume=False)
    train(kind, found, resume=True)
    print(kind.__name__, "second epoch, resumed after 4 of 12:", found[12:16], found[16:])
    once[kind] = sorted(found[12:]) == list(range(12))
assert once == {DataLoader: True, StatefulDataLoader: False}, "it has changed"
EOF
