"""Two photographs cut into patches and written as TFRecord shards: the demonstration's own data."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

import asyncdata as ad
from asyncdata.demo.extra import require
from asyncdata.demo.images import encode_jpeg

__all__ = ("ensure_shards", "load_photographs", "patches", "write_shards")

PATCH: Final = 192
"""Height and width of a patch in pixels."""

STRIDE: Final = 6
BORDER: Final = 213
"""Patches to test on lie left of this column, patches to train on right of it."""

SHARDS: Final = {"train": 8, "test": 2}
FOLDER: Final = "photographs-2"


def ensure_shards(cache: Path) -> Path:
    """Return the folder in `cache` that holds the shards, written first unless they are all there.

    They are written into a folder next to it that is renamed when it is complete, so that an interrupted run leaves
    nothing that looks finished.
    """
    folder = cache / FOLDER
    if all((folder / name).is_file() for part in SHARDS for name in shard_names(part)):
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{FOLDER}-", dir=cache, ignore_cleanup_errors=True) as workplace:
        complete = Path(workplace) / FOLDER
        complete.mkdir()
        photographs = load_photographs()
        for part in SHARDS:
            write_shards(complete, shard_names(part), patches(photographs, part))
        shutil.rmtree(folder, ignore_errors=True)
        complete.rename(folder)
    return folder


def shard_names(part: str) -> list[str]:
    """Return the file names of the shards of `part`, which is "train" or "test"."""
    count = SHARDS[part]
    return [f"{part}-{index:05d}-of-{count:05d}.tfrecord" for index in range(count)]


def load_photographs() -> list[NDArray[np.uint8]]:
    """Return scikit-learn's two sample photographs: a palace in China and a flower."""
    return list(require("sklearn.datasets").load_sample_images().images)


def patches(photographs: Sequence[NDArray[np.uint8]], part: str) -> Iterator[tuple[NDArray[np.uint8], int]]:
    """Yield the patches of `part` with the number of their photograph, in one fixed random order.

    No pixel that is trained on is ever tested on: the two parts lie on either side of a column.
    """
    places: list[tuple[int, int, int]] = [
        (label, y, x)
        for label, photograph in enumerate(photographs)
        for x in columns(photograph.shape[1], part)
        for y in range(0, photograph.shape[0] - PATCH + 1, STRIDE)
    ]
    order: list[int] = np.random.default_rng(0).permutation(len(places)).tolist()
    for label, y, x in (places[index] for index in order):
        yield photographs[label][y : y + PATCH, x : x + PATCH], label


def columns(width: int, part: str) -> range:
    """Return the left edges of the patches of `part`."""
    left, right = (BORDER, width) if part == "train" else (0, BORDER)
    return range(left, right - PATCH + 1, STRIDE)


def write_shards(folder: Path, names: Sequence[str], examples: Iterable[tuple[NDArray[np.uint8], int]]) -> None:
    """Deal `examples` to one TFRecord file per name, as tf.Example with the features "image" and "label"."""
    records = [ad.make_example({"image": encode_jpeg(image), "label": label}) for image, label in examples]
    for index, name in enumerate(names):
        with ad.TFRecordWriter(folder / name) as writer:
            for record in records[index :: len(names)]:
                writer.write(record)
