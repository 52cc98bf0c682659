"""Folders of TensorFlow Datasets as users read them: that in tests/data was written by tensorflow-datasets."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes
from tests.data.write_tfds import FOLDER, SPLITS, sample
from tests.marks import first_by_default
from tests.reference import Failed
from tests.remote.web import web
from tests.running import WAYS, results

MINE = FOLDER / "mine"

NUMBERS: dict[str, list[int]] = json.loads((FOLDER / "splits.json").read_text())
"""The samples of each split, in the order in which tensorflow-datasets reads them."""

SHARD = "mine-train.tfrecord-00001-of-00004"


def told(value: Any) -> Any:
    """Return a value as it is compared: with its type, and dtypes and shapes of arrays."""
    if isinstance(value, dict):
        return {name: told(part) for name, part in value.items()}
    if isinstance(value, list):
        return [*map(told, value)]
    if isinstance(value, np.ndarray | np.generic):
        return type(value), value.dtype, value.shape, value.tolist()
    return type(value), value


def numbers(ds: ad.Dataset[Any]) -> list[Any]:
    return [one if isinstance(one, Failed) else int(one["id"]) for one in results(ds)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the folder, whose files may be changed, and beside which an index may be stored."""
    return Path(shutil.copytree(MINE, tmp_path / "mine"))


def as_array_records(folder: Path) -> Path:
    """Write the records of a folder as ArrayRecord."""
    module = pytest.importorskip("array_record.python.array_record_module")
    for path in folder.glob("*.tfrecord-*"):
        writer = module.ArrayRecordWriter(str(path).replace("tfrecord", "array_record"), "group_size:1")
        for record in ad.TFRecordDataset(path):
            writer.write(record)
        writer.close()
        path.unlink()
    info = folder / "dataset_info.json"
    info.write_text(info.read_text().replace("tfrecord", "array_record"))
    return folder


def test_samples_are_those_that_were_written() -> None:
    ds = ad.TfdsDataset(MINE, split="all")
    assert [*map(told, ds)] == [told(sample(number)) for number in NUMBERS["all"]]
    assert ds.class_names == {"label": ["cat", "dog", "bird"]}


def test_splits_are_those_of_the_package() -> None:
    for split in SPLITS:
        assert numbers(ad.TfdsDataset(MINE, split)) == NUMBERS[split], split


@pytest.mark.parametrize("way", WAYS)
def test_any_sample_by_its_number(way: Any, folder: Path) -> None:
    for split in ("all", "train[3:17]"):
        ds = ad.TfdsDataset(folder, split, index=True)
        assert len(ds) == len(NUMBERS[split])
        assert [int(one["id"]) for one in way(ds)] == NUMBERS[split]
        assert told(ds[-2]) == told(sample(NUMBERS[split][-2]))
        shuffled = [int(one["id"]) for one in way(ds.shuffle(seed=1))]
        assert sorted(shuffled) == sorted(NUMBERS[split]) != shuffled


@pytest.mark.parametrize("index", [False, True])
def test_resumes(index: bool, folder: Path) -> None:
    check_resumes(lambda: ad.TfdsDataset(folder, "train[3:17]+test", index=index), places=10)
    if index:
        check_resumes(lambda: ad.TfdsDataset(folder, "train[3:17]", index=True).shuffle(seed=2), places=3)


@pytest.mark.formats
def test_files_of_array_record(folder: Path) -> None:
    as_array_records(folder)
    for split in ("train", "train[3:17]"):
        ds = ad.TfdsDataset(folder, split)
        assert numbers(ds) == [int(ds[place]["id"]) for place in range(len(ds))] == NUMBERS[split]
    check_resumes(lambda: ad.TfdsDataset(folder, "train[3:17]").shuffle(seed=1), places=5)
    name = SHARD.replace("tfrecord", "array_record")
    shutil.copy(folder / name.replace("00001-of", "00002-of"), folder / name)  # of 5 records, not of 6
    with pytest.raises(ad.DataLossError, match=f"{name}: it has 5 records, and 6 by the index of its folder"):
        list(ad.TfdsDataset(folder, "train"))
    assert numbers(ad.TfdsDataset(folder, "train[6:]")) == [Failed("DataLossError"), *NUMBERS["train"][12:]]


@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("step", first_by_default([97 * 19, 97], 1))
def test_a_shard_cut_anywhere_gives_no_other_samples(step: int, index: bool, folder: Path) -> None:
    content, before, after = (MINE / SHARD).read_bytes(), NUMBERS["train"][2:6], NUMBERS["train"][12:15]
    for size in range(0, len(content), step):
        (folder / SHARD).write_bytes(content[:size])
        if index and not size:
            continue  # the empty file is one without records, below
        found = numbers(ad.TfdsDataset(folder, "train[2:15]", index=index))
        lost = found.index(Failed("DataLossError"))
        assert found == [*NUMBERS["train"][2:15][:lost], Failed("DataLossError"), *after]
        assert found[:4] == before


def test_a_shard_of_other_records_is_an_error(folder: Path) -> None:
    records = [*ad.TFRecordDataset(MINE / SHARD)]
    with ad.TFRecordWriter(folder / SHARD) as writer:
        for record in records[:-1]:
            writer.write(record)
    message = f"{SHARD}: it has 5 records, and 6 by the index of its folder"
    expected = [*NUMBERS["train"][:11], Failed("DataLossError"), *NUMBERS["train"][12:]]
    assert numbers(ad.TfdsDataset(folder, "train")) == expected
    check_resumes(lambda: ad.TfdsDataset(folder, "train[6:]"), places=8)
    with pytest.raises(ad.DataLossError, match=message):
        list(ad.TfdsDataset(folder, "train"))
    with pytest.raises(ad.DataLossError, match=message):
        len(ad.TfdsDataset(folder, "train", index=True))


def test_records_that_do_not_fit_are_errors_in_their_places(folder: Path) -> None:
    features = json.loads((folder / "features.json").read_text())
    parts = features["featuresDict"]["features"]
    for change, message in [
        ({"other": parts["id"]}, "not enough values"),
        ({"text": parts["id"]}, "'text': int64 is expected, got object"),
        ({"tensor": parts["zlib"]}, "zlib|bytes"),
        ({"rows": parts["tensor"]}, r"'rows': the shape \(2, 3\) is expected|float32 is expected"),
    ]:
        changed = features | {"featuresDict": {"features": {**parts, **change}}}
        (folder / "features.json").write_text(json.dumps(changed))
        with pytest.raises(ad.DataLossError, match=f"does not fit features.json: .*({message})"):
            list(ad.TfdsDataset(folder, "train"))


def test_a_split_whose_records_are_not_counted(folder: Path) -> None:
    """Old versions wrote how many shards there are, and not how many records each of them has."""
    info = json.loads((folder / "dataset_info.json").read_text())
    for more in ({"numBytes": "1170"}, {"numShards": "4"}):
        other = {"name": "other", **more}
        (folder / "dataset_info.json").write_text(json.dumps(info | {"splits": [*info["splits"], other]}))
        with pytest.raises(ad.DataLossError, match="its split 'other' has no shardLengths, and is not empty"):
            ad.TfdsDataset(folder, "all")
    other = {"name": "other", "numBytes": "0"}
    (folder / "dataset_info.json").write_text(json.dumps(info | {"splits": [*info["splits"], other]}))
    assert numbers(ad.TfdsDataset(folder, "all")) == NUMBERS["all"]


def test_what_is_not_supported_says_so(folder: Path) -> None:
    for split, message in [
        ("word", "there is no split 'word', but"),
        ("train[5:5]", "no records"),
        ("train[:24]", "beyond the 23 records"),
        ("train[3]", "bounds of one unit"),
        ("train[:5%:]", "is no slice"),
        ("train[:5%", "is no split"),
        ("train[:x]", "is no slice"),
        ("train[9shard]", "out of range"),
    ]:
        with pytest.raises(ad.PlanError, match=rf"TfdsDataset\(split=.*{message}"):
            ad.TfdsDataset(folder, split)
    info, features = ((folder / name).read_text() for name in ("dataset_info.json", "features.json"))
    (folder / "features.json").write_text(features.replace('"boundingBox"', '"word"'))
    with pytest.raises(ad.DataLossError, match=r"features\.json: .*'box' is of the kind 'BBoxFeature'"):
        ad.TfdsDataset(folder, "train")
    (folder / "dataset_info.json").write_text(info.replace('"fileFormat": "tfrecord"', '"fileFormat": "riegeli"'))
    with pytest.raises(ad.PlanError, match="has files of riegeli; those of tfrecord and array_record"):
        ad.TfdsDataset(folder, "train")
    (folder / "dataset_info.json").write_text(info.replace("{DATASET}", "../{DATASET}"))
    (folder / "features.json").write_text(features)
    with pytest.raises(ad.DataLossError, match="outside of the folder"):
        ad.TfdsDataset(folder, "train")
    (folder / "dataset_info.json").write_text("[]")
    with pytest.raises(ad.DataLossError, match="no index of TensorFlow Datasets"):
        ad.TfdsDataset(folder, "train")
    with pytest.raises(FileNotFoundError) as missing:
        ad.TfdsDataset(folder / "none", "train")
    assert "has a file dataset_info.json" in missing.value.__notes__[0]


def test_a_folder_on_a_web_server(tmp_path: Path) -> None:
    with web() as server:
        for path in MINE.iterdir():
            url = server.put(f"mine/{path.name}", path.read_bytes())
        root = url.rpartition("/")[0]
        assert numbers(ad.TfdsDataset(root, "train[3:17]")) == NUMBERS["train[3:17]"]
        with ad.TFRecordWriter(tmp_path / "short") as writer:
            for record in [*ad.TFRecordDataset(MINE / SHARD)][:5]:
                writer.write(record)
        server.put(f"mine/{SHARD}", (tmp_path / "short").read_bytes())
        expected = [*NUMBERS["train"][6:11], Failed("DataLossError"), *NUMBERS["train"][12:14]]
        assert numbers(ad.TfdsDataset(root, "train[6:14]")) == expected
        check_resumes(lambda: ad.TfdsDataset(root, "train[6:14]"), places=4)
        server.put(f"mine/{SHARD}", (MINE / SHARD).read_bytes())
        cached = ad.TfdsDataset(root, "train", index=True, cache_dir=tmp_path)
        assert int(cached[11]["id"]) == NUMBERS["train"][11]
