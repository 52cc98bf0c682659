"""Write TFRecord files of tf.Example messages, and read them back shuffled, decoded and in batches."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import asyncdata as ad

FEATURES = {
    "pixels": ad.FixedLenFeature((4, 4), np.float32),
    "label": ad.FixedLenFeature((), np.int64),
    "name": ad.FixedLenFeature((), bytes),
}


def write_shard(path, labels):
    with ad.TFRecordWriter(path) as writer:
        for label in labels:
            pixels = np.full((4, 4), label, np.float32)
            writer.write(ad.make_example({"pixels": pixels.ravel(), "label": label, "name": f"picture {label}"}))


def decode(record):
    return ad.parse_single_example(record, FEATURES)


with tempfile.TemporaryDirectory() as folder:
    for shard in range(4):
        write_shard(Path(folder, f"train-{shard}.tfrecord"), range(shard * 25, shard * 25 + 25))

    ds = (
        ad.Dataset.list_files(f"{folder}/train-*.tfrecord", seed=0)
        .interleave(ad.TFRecordDataset, cycle_length=4, num_parallel_calls=ad.AUTOTUNE)
        .shuffle(100, seed=0)
        .map(decode, num_parallel_calls=ad.AUTOTUNE)
        .batch(32)
    )
    seen = set()
    for batch in ds:
        print("pixels", batch["pixels"].shape, batch["pixels"].dtype, "first name", batch["name"][0])
        seen.update(batch["label"].tolist())
    print("every record once:", seen == set(range(100)))
