"""Training finds the batch with the worst loss, names its records, has it again, and shows that each came once."""

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


def train(batches):
    weights, losses = np.zeros(3), []
    for x, y in batches:
        error = x @ weights - y
        losses.append(float(np.mean(error**2)))
        weights -= 0.1 * x.T @ np.clip(error, -5, 5) / len(y)
    return losses


if __name__ == "__main__":
    write_files()
    losses = train(pipeline().with_options(ad.Options(record=log)))
    worst = int(np.argmax(losses))
    ds, origin = pipeline(), step_origin(read_logs([log]), worst, None)
    ((x, y),) = ds.replay([origin])
    record = ds.locate(origin)[int(np.argmax(abs(y)))]
    print(f"the loss is {losses[worst]:.0f} in step {worst}, whose batch has {len(y)} records")
    print(f"worst label {y.max():.0f}: {os.path.basename(record['file'])}, record {record['record']}")
    for epoch in audit(read_logs([log])):
        print(epoch)
