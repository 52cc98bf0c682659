"""Folders of MDS as users read them: those in tests/data were written by mosaicml-streaming."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.formats.mds import MdsFormat
from asyncdata.formats.shards import SampleLayout, ShardParser
from asyncdata.storage.local import RandomFile
from asyncdata.testing import check_resumes
from tests.data.write_mds import COUNT, FOLDER, FOLDERS, sample
from tests.mds import mds_shard
from tests.reference import Failed
from tests.remote.web import web
from tests.running import WAYS, results

PLAIN = FOLDER / "plain"
IN_ONE = {"text": ("str", None), "number": ("uint16", 2)}


def told(element: Any) -> Any:
    """Return a sample as it is compared: with the types of its values, and the dtypes and shapes of arrays."""
    return {
        name: (type(value), value.dtype, value.shape, value.tolist())
        if isinstance(value, np.ndarray | np.generic)
        else (type(value), value)
        for name, value in element.items()
    }


def write(path: Path, *samples: tuple[str, int]) -> Path:
    """Write a shard of a text and a number per sample."""
    path.write_bytes(mds_shard(IN_ONE, [[text.encode(), np.uint16(number).tobytes()] for text, number in samples]))
    return path


def needs_zstd(name: str) -> Any:
    return pytest.param(name, marks=[pytest.mark.formats] if name == "zstd" else [])


@pytest.mark.parametrize("name", [*map(needs_zstd, FOLDERS)])
def test_samples_are_those_that_were_written(name: str) -> None:
    found = [*ad.MdsDataset(FOLDER / name, split="train")]
    assert [*map(told, found)] == [told(sample(number)) for number in range(COUNT)]
    for element in found:
        element["array"][...] = 0  # it may be changed
    check_resumes(lambda: ad.MdsDataset(FOLDER / name, split="train", buffer_size=500), places=COUNT)


@pytest.mark.parametrize("way", WAYS)
def test_any_sample_by_its_number(way: Any) -> None:
    ds = ad.MdsDataset([PLAIN / "train", PLAIN / "train"], index=True)
    assert len(ds) == 2 * COUNT
    assert told(ds[COUNT + 20]) == told(ds[-3]) == told(sample(20))
    assert [*map(told, way(ds))] == [told(sample(number)) for number in range(COUNT)] * 2


def test_shuffled_without_a_buffer() -> None:
    def shuffled() -> ad.Dataset[Any]:
        return ad.MdsDataset(PLAIN, split="train", index=True).shuffle(seed=3)

    numbers = [-element["int"] for element in shuffled()]
    assert sorted(numbers) == [*range(COUNT)] != numbers
    check_resumes(shuffled)


@pytest.mark.parametrize("index", [False, True])
def test_a_shard_cut_anywhere_is_one_error_after_its_complete_samples(index: bool, tmp_path: Path) -> None:
    path = PLAIN / "train" / "shard.00000.mds"
    content = path.read_bytes()
    whole = [told(element) for element in ad.MdsDataset(path)]
    cut = tmp_path / "cut.mds"
    for size in range(0, len(content), 97):
        cut.write_bytes(content[:size])
        found = results(ad.MdsDataset([cut, path], index=index))
        before = found[: -len(whole) - 1]
        assert [*map(told, before)] == whole[: len(before)]
        assert found[len(before)] == Failed("DataLossError")
        assert [*map(told, found[len(before) + 1 :])] == whole


def test_damaged_shards_are_the_same_with_an_index(tmp_path: Path) -> None:
    other, path = tmp_path / "other.mds", write(tmp_path / "a.mds", *[(f"#{number}", number) for number in range(9)])
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        other.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        plain, indexed = (results(ad.MdsDataset([other, path], index=index)) for index in (False, True))
        assert [str(one) for one in plain] == [str(one) for one in indexed]
        assert len(ad.MdsDataset([other, path], index=True)) == len(plain)
    other.write_bytes(content + b"x")
    assert (
        results(ad.MdsDataset(other))[9:] == results(ad.MdsDataset(other, index=True))[9:] == [Failed("DataLossError")]
    )


@pytest.mark.parametrize("index", [False, True])
def test_a_damaged_sample_is_one_error_in_its_place(index: bool, tmp_path: Path) -> None:
    path = write(tmp_path / "a.mds", ("one", 1), ("two", 2), ("three", 3))
    path.write_bytes(path.read_bytes().replace(b"two", b"\xff\xff\xff"))
    ds = ad.MdsDataset(path, index=index)
    assert [one if isinstance(one, Failed) else one["text"] for one in results(ds)] == [
        "one",
        Failed("DataLossError"),
        "three",
    ]
    with pytest.raises(ad.DataLossError, match=r"a\.mds: the sample at byte \d+: its column 'text' is no str"):
        list(ds)


@pytest.mark.parametrize("index", [False, True])
def test_pickles_are_refused_unless_they_are_allowed(index: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.mds"
    path.write_bytes(mds_shard({"any": ("pkl", None)}, [[pickle.dumps({1, 2})], [b"no pickle"]]))
    with pytest.raises(ad.DataLossError, match="'any' is pickled.*allow_pickle=True"):
        list(ad.MdsDataset(path, index=index))
    assert results(ad.MdsDataset(path, index=index, allow_pickle=True)) == [{"any": {1, 2}}, Failed("DataLossError")]


@pytest.mark.parametrize(
    ("encoding", "size", "message"),
    [
        ("wrong", None, "the encoding 'wrong', which is unknown"),
        ("ndarray:bool", None, "whose dtype is unknown"),
        ("ndarray:int8:0", 0, "whose shape is impossible"),
        ("int", 4, r"8 is expected as the size of 'x' \(int\), got 4"),
    ],
)
def test_unknown_encodings_are_refused(encoding: str, size: int | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.mds"
    path.write_bytes(mds_shard({"x": (encoding, size)}, [[b"1234"]]))
    with pytest.raises(ad.DataLossError, match=message):
        list(ad.MdsDataset(path))


def index_of(folder: Path, *names: str, **more: Any) -> Path:
    shards = [
        {"format": "mds", "version": 2, "raw_data": {"basename": name}, "zip_data": None} | more for name in names
    ]
    folder.joinpath("index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    return folder


@pytest.mark.parametrize("name", ["../a.mds", "/a.mds", "b/../../a.mds", "s3://bucket/a.mds"])
def test_shards_outside_of_the_folder_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ad.DataLossError, match=r"index\.json: it is no index of MDS: .* is outside of the folder"):
        ad.MdsDataset(index_of(tmp_path, name))


def test_folders_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        ad.MdsDataset(tmp_path)
    assert "has a file index.json" in missing.value.__notes__[0]
    with pytest.raises(ad.DataLossError, match="expected 'mds'"):
        ad.MdsDataset(index_of(tmp_path, "a.csv", format="csv"))
    (tmp_path / "index.json").write_text("[]")
    with pytest.raises(ad.DataLossError, match="no index of MDS"):
        ad.MdsDataset(tmp_path)


def test_compressed_shards_are_read_by_number_if_decompressed_ones_are_beside(tmp_path: Path) -> None:
    folder = tmp_path / "gz"
    shutil.copytree(FOLDER / "gz" / "train", folder)
    with pytest.raises(ad.PlanError, match=r"shard\.00000\.mds\.gz is compressed"):
        ad.MdsDataset(folder, index=True)
    for path in (PLAIN / "train").glob("*.mds"):
        shutil.copy(path, folder)
    assert told(ad.MdsDataset(folder, index=True)[9]) == told(sample(9))
    with pytest.raises(ad.PlanError, match="compressed by br, which is not supported"):
        ad.MdsDataset([tmp_path / "a.mds.br"])


def test_a_folder_on_a_web_server() -> None:
    with web() as server:
        for path in (PLAIN / "train").iterdir():
            url = server.put(f"train/{path.name}", path.read_bytes())
        folder = url.rpartition("/train/")[0]
        found = [*ad.MdsDataset(folder, split="train")]
        assert [*map(told, found)] == [told(sample(number)) for number in range(COUNT)]
        check_resumes(lambda: ad.MdsDataset(folder, split="train"), places=6)
        with pytest.raises(ad.PlanError, match="needs cache_dir="):
            ad.MdsDataset(f"{folder}/train/shard.00000.mds", index=True)


def test_a_shard_that_has_changed_since_its_header_was_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mds", ("one", 1))
    ds = ad.MdsDataset(path, index=True)
    assert len(ds) == 1
    write(path, ("one", 1), ("two", 2))
    with pytest.raises(ad.DataLossError, match="has changed"):
        ds[0]


@pytest.mark.parametrize("index", [False, True])
def test_a_shard_that_has_other_samples_than_its_folder_says_is_one_error(index: bool, tmp_path: Path) -> None:
    write(tmp_path / "a.mds", *[(f"a{number}", number) for number in range(3)])
    write(tmp_path / "b.mds", ("b", 1))
    index_of(tmp_path, "a.mds", "b.mds")
    stated = json.loads((tmp_path / "index.json").read_text())
    for shard, count in zip(stated["shards"], (3, 2), strict=True):
        shard["samples"] = count
    (tmp_path / "index.json").write_text(json.dumps(stated))
    found = results(ad.MdsDataset(tmp_path, index=index))
    assert [type(element) is Failed for element in found] == [False] * 3 + [True]
    with pytest.raises(ad.DataLossError, match=r"b\.mds: it has 1 samples, and 2 by the index\.json of its folder"):
        list(ad.MdsDataset(tmp_path, index=index))


@pytest.mark.parametrize("size", [1, 7, 100, 1000, 100_000])
def test_samples_are_decoded_where_they_were_read(size: int) -> None:
    """Blocks are read into the same memory one after another; of a block only an incomplete sample is copied."""
    content = mds_shard(IN_ONE, [[b"x" * (number % 50), np.uint16(number).tobytes()] for number in range(200)])
    parser, block, found, inside = ShardParser("a.mds", "a.mds", MdsFormat(False, {})), bytearray(size), [], []
    decode = SampleLayout.decode

    def noted(layout: SampleLayout, data: memoryview, begin: int, end: int) -> Any:
        inside.append(data.obj is block)
        return decode(layout, data, begin, end)

    with mock.patch.object(SampleLayout, "decode", noted):
        for at in range(0, len(content), size):
            part = content[at : at + size]
            block[: len(part)] = part
            parser.feed(memoryview(block)[: len(part)])
            while some := parser.parse(3):
                found += some
            block[:] = b"\xff" * size
    parser.finish()
    assert parser.parse(3) == []
    expected = [(number % 50, number) for number in range(200)]
    assert [(len(one["text"]), int(one["number"])) for one in found] == expected
    assert inside.count(False) <= len(content) // size


def test_offsets_of_many_samples_are_read_at_once() -> None:
    ds = ad.MdsDataset(PLAIN / "train", index=True)
    with mock.patch.object(RandomFile, "read_at", autospec=True, side_effect=RandomFile.read_at) as read:
        assert len(list(ds.shuffle(seed=0))) == COUNT
    assert read.call_count < 2 * COUNT
