"""What each reader has to do: go on anywhere, in another number of processes too, and be known to the commands.

`tests/formats/test_every_format.py` asks more of formats of which a small file can be made; `tests/remote/test_s3.py`
reads all of these from an object store.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.__main__ import main
from asyncdata.checkpoint import merge_states
from asyncdata.testing import check_resumes
from tests.formats.table import FORMATS
from tests.formats.test_damaged_folders import DATA, told
from tests.litdata import lit_chunk, write_index
from tests.tfds import write_tfds

__all__ = ("READERS", "Reader", "made")


@dataclass(frozen=True)
class Reader:
    """A reader: the file or folder that is made for it, and how that is read."""

    make: Callable[[Path], object]
    """Make what is read at a path."""
    read: Callable[..., ad.Dataset[Any]]
    kind: str
    """What `asyncdata inspect` calls the format, "" if it does not know it."""
    to: str = "parquet"
    """What `asyncdata convert` can make of it."""
    stores: bool = True
    """Whether it reads from object stores, without a copy on this machine."""
    suffix: str = ""
    needs: tuple[str, ...] = ()
    """The packages that it needs."""


def of_format(name: str, read: Callable[..., ad.Dataset[Any]], kind: str, **more: Any) -> Reader:
    return Reader(lambda path: FORMATS[name].write(path, range(23)), read, kind, suffix=f".{name}", **more)


def of_folder(place: str, read: Callable[..., ad.Dataset[Any]], kind: str, **more: Any) -> Reader:
    return Reader(lambda path: shutil.copytree(DATA / place, path), read, kind, **more)


def records(path: Path) -> None:
    path.write_bytes(b"".join(b"\xff%04d" % number for number in range(23)))


def lines(path: Path) -> None:
    path.write_text("".join(f"line {number}\n" for number in range(23)))


def pictures(path: Path) -> None:
    for number in range(23):
        name = path / f"{number % 3}" / f"{number:02}.jpg"
        name.parent.mkdir(parents=True, exist_ok=True)
        name.write_bytes(b"\xff\xd8 %d" % number)


def lance_table(path: Path) -> None:
    lance, pa = pytest.importorskip("lance"), pytest.importorskip("pyarrow")
    lance.write_dataset(pa.table({"id": [*range(23)]}), path, max_rows_per_file=7)


def zarr_array(path: Path) -> None:
    zarr = pytest.importorskip("zarr", minversion="3")
    array = zarr.create_array(path, shape=(23, 2), dtype="int16", chunks=(5, 2))
    array[:] = np.arange(46).reshape(23, 2)


def litdata(path: Path) -> None:
    path.mkdir()
    for name, numbers in (("chunk-0-0.bin", range(9)), ("chunk-0-1.bin", range(9, 23))):
        (path / name).write_bytes(lit_chunk([(number, b"#%d" % number) for number in numbers]))
    write_index(path, {"chunk-0-0.bin": 9, "chunk-0-1.bin": 14})


def tfds(path: Path) -> None:
    path.mkdir()
    write_tfds(path, {"train": [range(9), range(9, 15)], "test": [range(15, 23)]})


def both_parts(path: Any, **how: Any) -> ad.Dataset[Any]:
    train, val = (ad.EnergonDataset(path, part, dataset_config=None, **how) for part in ("train", "val"))
    return train.concatenate(val)


def tokens(path: Path) -> None:
    path.mkdir()
    for suffix in ("bin", "idx"):
        shutil.copy(DATA / "tokens" / f"int32.{suffix}", path)


def documents(path: Any, **how: Any) -> ad.Dataset[Any]:
    return ad.TokenDataset(f"{path}/int32.bin", **how)


READERS = {
    "ArrayRecordDataset": of_format("array_record", ad.ArrayRecordDataset, "ArrayRecord", to="tfrecord", stores=False),
    "ArrowDataset": of_format("arrow", ad.ArrowDataset, "Arrow"),
    "EnergonDataset": of_folder("energon/images", both_parts, "Energon's WebDataset", to="webdataset", needs=("yaml",)),
    "FixedLengthRecordDataset": Reader(records, partial(ad.FixedLengthRecordDataset, record_bytes=5), ""),
    "ImageFolderDataset": Reader(pictures, ad.ImageFolderDataset, "folder of pictures in 3 classes", to="webdataset"),
    "JsonLinesDataset": of_format("jsonl", ad.JsonLinesDataset, "JSON Lines"),
    "LanceDataset": Reader(lance_table, ad.LanceDataset, "Lance", suffix=".lance"),
    "LeRobotDataset": of_folder("lerobot", ad.LeRobotDataset, "LeRobot", needs=("pyarrow", "av")),
    "LitDataset": Reader(litdata, ad.LitDataset, "LitData"),
    "MdsDataset": of_format("mds", ad.MdsDataset, "MDS"),
    "NpyDataset": of_format("npy", ad.NpyDataset, "NumPy"),
    "ParquetDataset": of_format("parquet", ad.ParquetDataset, "Parquet", to="jsonl"),
    "SafetensorsDataset": of_format("safetensors", ad.SafetensorsDataset, "safetensors"),
    "TFRecordDataset": of_format("tfrecord", ad.TFRecordDataset, "TFRecord"),
    "TextLineDataset": Reader(lines, ad.TextLineDataset, "text", to="jsonl", suffix=".txt"),
    "TfdsDataset": Reader(tfds, partial(ad.TfdsDataset, split="all"), "TensorFlow Datasets", to="tfrecord"),
    "TokenDataset": Reader(tokens, documents, "Megatron's tokens, 2 files", stores=False),
    "WebDataset": of_format("tar", ad.WebDataset, "WebDataset", to="webdataset"),
    "ZarrDataset": Reader(zarr_array, ad.ZarrDataset, "Zarr", suffix=".zarr"),
}


def test_each_reader_is_here() -> None:
    public = [names for module, names in ad.MODULES.items() if module.startswith("readers.")]
    assert {*READERS} == {name for (name,) in public}


reader_params = pytest.mark.parametrize("name", READERS)

BACK: dict[str, Callable[[Any], ad.Dataset[Any]]] = {
    "parquet": ad.ParquetDataset,
    "jsonl": ad.JsonLinesDataset,
    "tfrecord": ad.TFRecordDataset,
    "webdataset": ad.WebDataset,
}


@pytest.fixture
def path(name: str, tmp_path: Path) -> Path:
    return made(name, tmp_path)


def made(name: str, folder: Path) -> Path:
    """Make what a reader reads, or skip the test if a package is missing."""
    for package in READERS[name].needs:
        pytest.importorskip(package)
    path = folder / f"made{READERS[name].suffix}"
    READERS[name].make(path)
    return path


tables = pytest.mark.formats


@pytest.mark.parametrize(
    ("read", "one", "other"),
    [
        (ad.FixedLengthRecordDataset, {"record_bytes": 1}, {"record_bytes": 5}),
        (ad.SafetensorsDataset, {"tensors": ["a"]}, {"tensors": ["b"]}),
        (ad.TokenDataset, {"window": 2, "dtype": "uint8"}, {"window": 3, "dtype": "uint8"}),
        pytest.param(ad.ArrowDataset, {"columns": ["a"]}, {"columns": ["b"]}, marks=tables),
        pytest.param(ad.ParquetDataset, {"columns": ["a"]}, {"columns": ["b"]}, marks=tables),
        pytest.param(ad.ParquetDataset, {"filters": [("a", ">", 1)]}, {"filters": [("a", ">", 2)]}, marks=tables),
    ],
)
def test_another_argument_makes_another_pipeline_of_one_file_and_of_several(
    read: Any, one: dict[str, Any], other: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(10))
    for names in (path, [path, path]):
        assert read(names, **one).fingerprint() != read(names, **other).fingerprint()


@pytest.mark.parametrize("read", [ad.JsonLinesDataset, ad.NpyDataset, ad.TFRecordDataset, ad.WebDataset])
def test_an_index_makes_no_other_pipeline(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"")
    for names in (path, [path, path]):
        assert read(names, index=True).fingerprint() == read(names).fingerprint()


@pytest.mark.formats
@reader_params
def test_goes_on_at_each_element(name: str, path: Path) -> None:
    check_resumes(lambda: READERS[name].read(path), places=40)


@pytest.mark.formats
@reader_params
def test_goes_on_in_another_number_of_processes(name: str, path: Path) -> None:
    whole = [*map(told, READERS[name].read(path))]

    def share(count: int, index: int) -> ad.Dataset[Any]:
        return READERS[name].read(path).shard(count, index)

    found, states = list[Any](), list[Any]()
    for index in range(2):
        with share(2, index).iterate() as elements:
            found += [told(next(elements)) for _ in range(1 + index)]
            states.append(elements.state_dict())
    merged = merge_states(states)
    for index in range(3):
        found += [told(one) for one in share(3, index).iterate(state=merged)]
    assert sorted(map(repr, found)) == sorted(map(repr, whole))


@pytest.mark.formats
@reader_params
def test_commands(name: str, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reader = READERS[name]
    if not reader.kind:
        assert main(["inspect", str(path)]) == 2
        return
    count = sum(1 for _ in reader.read(path))
    assert main(["inspect", str(path)]) == 0
    shown = capsys.readouterr().out
    assert f"format    {reader.kind}" in shown
    assert f"elements  {count}\n" in shown
    assert "damage" not in shown
    assert main(["convert", str(path), str(tmp_path / "out"), "--to", reader.to, "--shards", "2"]) == 0
    written = ad.Dataset.list_files(f"{tmp_path}/out/*", shuffle=False)
    assert sum(1 for _ in BACK[reader.to](written)) == count
