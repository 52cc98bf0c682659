"""Training finds the batch with the worst loss, shows its records, leaves the bad one out, and goes on from before."""

from __future__ import annotations

import os
import tempfile

import numpy as np

import asyncdata as ad
from asyncdata.recorder.audit import audit
from asyncdata.recorder.log_reader import read_logs, step_origin

folder = tempfile.mkdtemp()
log = os.path.join(folder, "run.jsonl")


def write_files():
    rng = np.random.default_rng(1)
    for number in range(4):
        with ad.TFRecordWriter(f"{folder}/{number}.tfrecord") as writer:
            for record in range(250):
                x = rng.normal(size=3)
                y = 1e3 if (number, record) == (2, 137) else x @ [1.0, -2.0, 0.5]  # one label is wrong
                writer.write(np.append(x, y).tobytes())


def augment(record, rng):
    x = np.frombuffer(record)
    return x[:3] + rng.normal(size=3) / 100, x[3]


def pipeline():
    files = ad.Dataset.list_files(f"{folder}/*.tfrecord", shuffle=False)
    records = ad.TFRecordDataset(files, num_parallel_reads=2).shuffle(200, seed=3)
    return records.map(augment, ad.AUTOTUNE, rng=True, seed=4).batch(20)


def train(batches, weights, losses):
    """Train on the rest of an epoch; return the state and the weights before every tenth step, as checkpoints."""
    saved = {}
    for step, (x, y) in enumerate(batches, len(losses)):
        error = x @ weights - y
        losses.append(float(np.mean(error**2)))
        weights -= 0.1 * x.T @ np.clip(error, -5, 5) / len(y)
        if step % 10 == 9:
            saved[step + 1] = batches.state_dict(), weights.copy()
    return saved


def show(ds, origin):
    """Print the records of a batch, each with its label as a bar; return the record with the largest one."""
    ((_, y),) = ds.replay([origin])
    records = ds.locate(origin)
    for record, label in zip(records, y, strict=True):
        bar = "#" * min(40, round(8 * np.log1p(abs(label))))
        print(f"  {os.path.basename(record['file'])} {record['record']:>3} {label:>8.2f} {bar}")
    return records[int(np.argmax(abs(y)))]


if __name__ == "__main__":
    write_files()
    weights, losses = np.zeros(3), []
    ds = pipeline().with_options(ad.Options(record=log))
    with ds.iterate() as batches:
        saved = train(batches, weights, losses)
    worst = int(np.argmax(losses))
    print(f"the loss is {losses[worst]:.0f} in step {worst}, whose batch has")
    bad = show(ds, step_origin(read_logs([log]), worst, None))
    print(f"the worst is {os.path.basename(bad['file'])}, record {bad['record']}")

    before = max(step for step in saved if step <= worst)  # go back to the checkpoint before it
    (state, weights), losses = saved[before], losses[:before]
    with ds.exclude([bad]).iterate(state=state) as batches:
        train(batches, weights, losses)
    print(f"from step {before} on without it the loss is at most {max(losses[before:]):.3f}")
    for epoch in audit(read_logs([log])):
        print(epoch)
