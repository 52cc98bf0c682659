"""Folders of TensorFlow Datasets for tests, written by hand: a number and its name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import asyncdata as ad
from asyncdata.formats.tfrecord import frame

__all__ = ("tfds_shards", "write_tfds")


def write_tfds(folder: Path, splits: Mapping[str, Sequence[Sequence[int]]]) -> Path:
    """Write shards with these numbers."""
    listed = [{"name": name, "shardLengths": [str(len(part)) for part in shards]} for name, shards in splits.items()]
    (folder / "dataset_info.json").write_text(json.dumps({"name": "mine", "splits": listed}))
    features = {"number": {"tensor": {"dtype": "int32"}}, "name": {"text": {}}}
    (folder / "features.json").write_text(json.dumps({"featuresDict": {"features": features}}))
    for name, shards in splits.items():
        for path, numbers in zip(tfds_shards(folder, name, len(shards)), shards, strict=True):
            examples = [ad.make_example({"number": number, "name": f"#{number}"}) for number in numbers]
            path.write_bytes(b"".join(map(frame, examples)))
    return folder


def tfds_shards(folder: Path, split: str, count: int) -> list[Path]:
    """Return the paths of the shards of a split."""
    return [folder / f"mine-{split}.tfrecord-{number:05}-of-{count:05}" for number in range(count)]
