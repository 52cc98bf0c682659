from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.demo import photos
from asyncdata.demo.pipelines import FEATURES


@pytest.mark.slow
def test_shards_are_complete_and_written_once(tmp_path: Path) -> None:
    folder = photos.ensure_shards(tmp_path)
    written = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert len(written) == 10
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    assert photos.ensure_shards(tmp_path) == folder
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == written


@pytest.mark.slow
def test_a_missing_shard_is_written_again_and_the_same(tmp_path: Path) -> None:
    folder = photos.ensure_shards(tmp_path)
    content = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "test-00001-of-00002.tfrecord").unlink()
    photos.ensure_shards(tmp_path)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == content


@pytest.mark.slow
def test_both_labels_are_in_every_shard(tmp_path: Path) -> None:
    folder = photos.ensure_shards(tmp_path)
    for shard in sorted(folder.iterdir()):
        examples = ad.TFRecordDataset(str(shard)).map(lambda record: ad.parse_single_example(record, FEATURES))
        labels = [int(example["label"]) for example in examples]
        assert 0.4 < np.mean(labels) < 0.6


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(photos, "write_shards", interrupted)
    with pytest.raises(KeyboardInterrupt):
        photos.ensure_shards(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_pixel_is_in_both_parts() -> None:
    height, width = 427, 640
    columns = np.broadcast_to(np.arange(width)[None, :, None], (height, width, 3))
    parts = {
        part: {int(column) for patch, _ in photos.patches([columns], part) for column in patch[0, :, 0]}
        for part in ("train", "test")
    }
    assert parts["train"]
    assert parts["test"]
    assert not parts["train"] & parts["test"]
