"""From JSON lines to packed rows on 3, 2, then 4 ranks: each token is trained on once, whichever ranks there are."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group: imported later, by DDP, it keeps Gloo's threads alive
import torch.multiprocessing
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel

import asyncdata as ad
from asyncdata.checkpoint import load_shares, save_share

LENGTH, PADDING, VOCABULARY = 64, 256, 257
SHARE_OF_TOKENS = {"web": 0.7, "code": 0.3}
RANKS_AND_STEPS = [(3, 6), (2, 5), (4, None)]  # the last ones train to the end


def write_corpora(folder):
    for name, documents in (("web", 90), ("code", 60)):
        for file in range(3):
            lines = [json.dumps({"text": f"{name} {n} " * (1 + n * 7 % 13)}) for n in range(file, documents, 3)]
            (folder / f"{name}-{file}.jsonl").write_text("\n".join(lines))


def tokenize(document):
    return np.frombuffer(document["text"].encode(), np.uint8).astype(np.int64)


def tokens_of(folder, name):
    """The documents of one corpus that are this rank's, as tokens."""
    files = sorted(map(str, folder.glob(f"{name}-*.jsonl")))
    return ad.JsonLinesDataset(files).shuffle(50, seed=1).shard().map(tokenize)  # the same seed on all ranks


def pipeline(folder):
    corpora = {name: tokens_of(folder, name) for name in SHARE_OF_TOKENS}
    mixed = ad.Dataset.sample_from_datasets(corpora, SHARE_OF_TOKENS, seed=2, cost=len)  # by tokens, not by documents
    rows = mixed.pack_sequences(
        LENGTH, overlong="split", padding_values=PADDING, fields=("labels", "position_ids", "attention_mask")
    )
    return rows.batch(4)


class Model(torch.nn.Module):
    """One layer of attention, in which a token sees its own document alone."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(VOCABULARY, 16), torch.nn.Embedding(LENGTH, 16)
        self.out = torch.nn.Linear(16, VOCABULARY)

    def forward(self, batch):
        x = self.tokens(batch["input_ids"]) + self.places(batch["position_ids"])
        return self.out(x + scaled_dot_product_attention(x, x, x, attn_mask=batch["attention_mask"]))


def loss_of(model, batch):
    predicted, labels = model(batch)[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten()
    return cross_entropy(predicted, labels, ignore_index=-100, reduction="sum") / max(1, (labels >= 0).sum())


NOTHING = {  # of a rank that has ended, so that no other waits for it: no labels
    "input_ids": torch.full((1, LENGTH), PADDING),
    "labels": torch.full((1, LENGTH), -100),
    "position_ids": torch.zeros((1, LENGTH), dtype=torch.int32),
    "attention_mask": torch.eye(LENGTH, dtype=torch.bool)[None],
}


def save(folder, step, model, loader, trained):
    """Write a checkpoint. Only one with a file `done` is complete: the machine may stop at any time."""
    folder = folder / f"checkpoint-{step}"
    folder.mkdir(exist_ok=True)
    save_share(folder, loader.state_dict(), checkpoint=step)
    counts = torch.tensor(trained)
    dist.all_reduce(counts)
    if dist.get_rank() == 0:
        torch.save({"model": model.module.state_dict(), "step": step, "trained": counts.item()}, folder / "model.pt")
    dist.barrier()
    if dist.get_rank() == 0:
        (folder / "done").touch()


def resume(folder, model, loader):
    """Go on at the newest complete checkpoint; return its step, and on one rank the number of tokens trained on."""
    complete = [path.parent for path in folder.glob("checkpoint-*/done")]
    if not complete:
        return 0, 0
    newest = max(complete, key=lambda path: int(path.name.rpartition("-")[2]))
    saved = torch.load(newest / "model.pt")
    model.module.load_state_dict(saved["model"])
    loader.load_state_dict(load_shares(newest))  # as many ranks as before, or others
    return saved["step"], saved["trained"] if dist.get_rank() == 0 else 0


def main(rank, folder):
    """Be a rank of each group in turn that has so many."""
    for ranks, steps in RANKS_AND_STEPS:
        if rank < ranks:
            meeting = f"file://{folder}/meeting-{ranks}"
            dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
            train(rank, folder, steps)
            dist.destroy_process_group()  # when the model is gone: DDP's can wait forever for Gloo's threads after it


def train(rank, folder, steps):
    torch.manual_seed(0)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = pipeline(folder).loader()
    begin, trained = resume(folder, model, loader)
    step = begin
    for batch in loader.even_steps(fill=NOTHING):
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step, trained = step + 1, trained + (batch["input_ids"] != PADDING).sum().item()
        if step - begin == steps:
            save(folder, step, model, loader, trained)
        if steps is not None and step - begin == steps + 2:
            break  # as if the machines had been lost, two steps after the checkpoint
    counts = torch.tensor(trained)
    dist.all_reduce(counts)
    if rank == 0 and steps is None:
        print("tokens trained on:", counts.item())
    dist.barrier()


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp())
    write_corpora(folder)
    documents = ad.JsonLinesDataset(sorted(map(str, folder.glob("*.jsonl"))))
    print("tokens in all documents:", sum(len(tokenize(document)) for document in documents))
    torch.multiprocessing.spawn(main, (folder,), nprocs=max(ranks for ranks, _ in RANKS_AND_STEPS))
    sys.exit()
