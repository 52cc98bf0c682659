"""`asyncdata inspect` says what files hold, `asyncdata convert` writes them in another format."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.__main__ import main
from asyncdata.cli.arguments import storage_options
from asyncdata.storage import store_for
from asyncdata.storage.options import StorageOptions
from tests.data.write_lerobot import FOLDER as LEROBOT
from tests.formats.table import FORMATS
from tests.litdata import lit_chunk, write_index
from tests.tfds import write_tfds

Capture = pytest.CaptureFixture[str]

ROWS = [{"id": number, "name": f"#{number}"} for number in range(5)]


def rows() -> ad.Dataset[Any]:
    return ad.Dataset.from_iterable(ROWS)


def jsonl(folder: Path) -> Path:
    return Path(rows().write_jsonl(folder)[0])


def tfrecord(folder: Path) -> Path:
    return Path(rows().map(ad.make_example).write_tfrecords(folder)[0])


def tar(folder: Path) -> Path:
    return Path(rows().map(lambda row: {"cls": row["id"], "txt": row["name"]}).write_webdataset(folder)[0])


def npy(folder: Path) -> Path:
    folder.mkdir()
    np.save(folder / "a.npy", np.arange(10).reshape(5, 2))
    return folder / "a.npy"


def text(folder: Path) -> Path:
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\nthree\nfour\nfive\n")
    return folder / "a.txt"


def csv(folder: Path) -> Path:
    folder.mkdir()
    (folder / "a.csv").write_text("id,name\n" + "".join(f"{row['id']},{row['name']}\n" for row in ROWS))
    return folder / "a.csv"


def parquet(folder: Path) -> Path:
    pytest.importorskip("pyarrow")
    return Path(rows().write_parquet(folder)[0])


def pictures(folder: Path) -> Path:
    for name in ("cat/1.jpg", "cat/2.jpg", "dog/1.jpg", "dog/2.jpg", "dog/3.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"\xff\xd8" + name.encode())
    return folder


def saved(folder: Path) -> Path:
    rows().save(folder)
    return folder


def mds(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.mds").write_bytes(FORMATS["mds"].content(range(5)))
    shards = [{"format": "mds", "version": 2, "raw_data": {"basename": "a.mds"}, "zip_data": None}]
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    return folder


def litdata(folder: Path) -> Path:
    folder.mkdir()
    (folder / "chunk-0-0.bin").write_bytes(lit_chunk([(row["id"], row["name"].encode()) for row in ROWS]))
    return write_index(folder, {"chunk-0-0.bin": 5})


def tfds(folder: Path) -> Path:
    folder.mkdir()
    return write_tfds(folder, {"train": [[1, 2], [3]], "test": [[4, 5]]})


def energon(folder: Path) -> Path:
    samples = rows().map(lambda row: {"cls": row["id"], "txt": row["name"]})
    names = [Path(name).name for name in samples.write_webdataset(folder, 2)]
    (folder / ".nv-meta").mkdir()
    split = {"split_parts": {"train": names[:1], "val": names[1:]}}
    (folder / ".nv-meta" / "split.json").write_text(json.dumps(split))
    return folder


def tensors(folder: Path) -> Path:
    folder.mkdir()
    return FORMATS["safetensors"].write(folder / "a", range(5))


def tokens(folder: Path) -> Path:
    folder.mkdir()
    tokens, ends = np.arange(1, 11, dtype=np.int32), np.arange(6)
    tokens.tofile(folder / "a.bin")
    index = [b"MMIDIDX\0\0", struct.pack("<QBQQ", 1, 4, 5, 6), np.int32([2] * 5).tobytes(), (ends[:5] * 8).tobytes()]
    (folder / "a.idx").write_bytes(b"".join([*index, ends.tobytes()]))
    return folder


KINDS: dict[str, tuple[Callable[[Path], Path], str, str]] = {
    "jsonl": (jsonl, "JSON Lines", "{'id': int, 'name': str}"),
    "tfrecord": (tfrecord, "TFRecord", "{'id': int64 (1,), 'name': object (1,)}"),
    "tar": (tar, "WebDataset", "{'__key__': str, 'cls': int, 'txt': str}"),
    "npy": (npy, "NumPy", "int64 (2,)"),
    "mds": (mds, "MDS", "{'id': int, 'name': str}"),
    "litdata": (litdata, "LitData", "{'id': int, 'name': str}"),
    "energon": (energon, "Energon's WebDataset", "{'__key__': str, 'cls': int, 'txt': str}"),
    "tfds": (tfds, "TensorFlow Datasets", "{'number': int32, 'name': bytes}"),
    "safetensors": (tensors, "safetensors", "{'x': int16, 'y': float64}"),
    "tokens": (tokens, "Megatron's tokens, 2 files", "int32 (2,)"),
    "text": (text, "text", "bytes"),
    "csv": (csv, "CSV", "{'id': int32, 'name': bytes}"),
    "pictures": (pictures, "folder of pictures in 2 classes", "(bytes, int)"),
    "saved": (saved, "saved dataset", "{'id': int, 'name': str}"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_files_hold(kind: str, tmp_path: Path, capsys: Capture) -> None:
    make, name, spec = KINDS[kind]
    path = make(tmp_path / kind)
    assert main(["inspect", str(path)]) == 0
    told = capsys.readouterr().out
    assert f"format    {name}\n" in told
    assert "elements  5\n" in told
    assert f"spec      {spec}\n" in told
    assert "damage" not in told
    assert main(["inspect", "--quick", str(path)]) == 0
    assert "elements" not in capsys.readouterr().out


@pytest.mark.formats
def test_a_parquet_file(tmp_path: Path, capsys: Capture) -> None:
    assert main(["inspect", str(parquet(tmp_path))]) == 0
    assert "format    Parquet\n" in capsys.readouterr().out


@pytest.mark.formats
def test_a_folder_of_lerobot(capsys: Capture) -> None:
    assert main(["inspect", str(LEROBOT)]) == 0
    told = capsys.readouterr().out
    assert "format    LeRobot\n" in told
    assert "elements  33\n" in told
    assert "damage" not in told


@pytest.mark.formats
@pytest.mark.parametrize("kind", ["HDF5", "Zarr"])
def test_arrays_in_files(kind: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "a"
    if kind == "HDF5":
        group: Any = pytest.importorskip("h5py").File(path, "w")
        group.create_dataset("in/x", data=np.arange(5, dtype=np.int16))
        group.create_dataset("y", data=np.zeros((5, 2)))
        group.close()
    else:
        group = pytest.importorskip("zarr").open_group(str(path), mode="w")
        group.create_array("in/x", data=np.arange(5, dtype=np.int16))
        group.create_array("y", data=np.zeros((5, 2)))
    assert main(["inspect", str(path)]) == 0
    told = capsys.readouterr().out
    for line in (f"format    {kind}\n", "elements  5\n", "'in/x': int16", "'y': float64 (2,)"):
        assert line in told
    assert main(["convert", str(path), str(tmp_path / "rows"), "--to", "jsonl"]) == 0
    found = [*ad.JsonLinesDataset(ad.Dataset.list_files(str(tmp_path / "rows" / "*.jsonl")))]
    assert sorted(row["in/x"] for row in found) == [0, 1, 2, 3, 4]
    group = pytest.importorskip("h5py").File(tmp_path / "b", "w")
    group["x"], group["y"] = np.zeros(3), np.zeros(4)
    group.close()
    assert main(["inspect", str(tmp_path / "b")]) != 0
    assert "not equally many rows, {'x': (3,), 'y': (4,)}" in capsys.readouterr().err


@pytest.mark.formats
def test_a_lance_dataset(tmp_path: Path, capsys: Capture) -> None:
    pa, lance = pytest.importorskip("pyarrow"), pytest.importorskip("lance")
    lance.write_dataset(pa.table({"id": range(5), "name": list("abcde")}), tmp_path / "a")
    assert main(["inspect", str(tmp_path / "a")]) == 0
    told = capsys.readouterr().out
    for line in ("format    Lance\n", "elements  5\n", "{'id': int64, 'name': str}"):
        assert line in told
    assert main(["convert", str(tmp_path / "a"), str(tmp_path / "rows"), "--to", "jsonl"]) == 0
    found = [*ad.JsonLinesDataset(ad.Dataset.list_files(str(tmp_path / "rows" / "*.jsonl")))]
    assert [row["id"] for row in found] == [0, 1, 2, 3, 4]


def test_folders_patterns_and_compressed_files(tmp_path: Path, capsys: Capture) -> None:
    content = jsonl(tmp_path / "a").read_bytes()
    (tmp_path / "a" / "b.jsonl.gz").write_bytes(gzip.compress(content))
    assert main(["inspect", str(tmp_path / "a" / "*.gz")]) == 0
    assert "format    JSON Lines, gzip\n" in capsys.readouterr().out
    (tmp_path / "a" / "b.jsonl.gz").rename(tmp_path / "b.jsonl.gz")
    (tmp_path / "a" / "c.jsonl").write_bytes(content)
    assert main(["inspect", str(tmp_path / "a")]) == 0
    told = capsys.readouterr().out
    assert "format    JSON Lines, 2 files\n" in told
    assert "elements  10\n" in told


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
@pytest.mark.parametrize("name", ["what?", "a[1]", "a*b"])
def test_a_name_that_looks_like_a_pattern(kind: str, name: str, tmp_path: Path, capsys: Capture) -> None:
    made = KINDS[kind][0](tmp_path / "a")
    path = made.rename(tmp_path / f"{name}.{kind}")
    (tmp_path / f"a1bx.{kind}").write_text("of another file\n")
    assert main(["inspect", str(path)]) == 0
    assert "elements  5\n" in capsys.readouterr().out
    assert main(["convert", str(path), str(tmp_path / "out"), "--to", "jsonl"]) == 0
    assert list(ad.JsonLinesDataset(sorted(map(str, (tmp_path / "out").glob("*.jsonl"))))) == ROWS


def test_damage_is_told(tmp_path: Path, capsys: Capture) -> None:
    path = tfrecord(tmp_path / "a")
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content[:-3])
    assert main(["inspect", str(path)]) == 1
    told = capsys.readouterr().out
    assert "elements  3\n" in told
    assert told.count("damage    DataLossError: ") == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\x00\x01\x02" * 99, "like no known format"), (b"", "like no known format")],
)
def test_what_nobody_knows(content: bytes, message: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "a").write_bytes(content)
    assert main(["inspect", str(tmp_path / "a")]) == 2
    assert message in capsys.readouterr().err
    assert main(["inspect", str(tmp_path / "none")]) == 2
    (tmp_path / "b.jsonl").write_text("{}")
    (tmp_path / "a").write_text("some text")
    assert main(["inspect", str(tmp_path)]) == 2
    assert "several formats" in capsys.readouterr().err


def convert(source: Path, target: Path, to: str, *more: str) -> list[str]:
    assert main(["convert", str(source), str(target), "--to", to, *more]) == 0
    return sorted(str(path) for path in target.iterdir() if not path.name.startswith("."))


def test_rows_become_lines_of_json_samples_and_examples(tmp_path: Path, capsys: Capture) -> None:
    source = jsonl(tmp_path / "a")
    assert list(ad.JsonLinesDataset(convert(source, tmp_path / "b", "jsonl", "--shards", "2"))) == ROWS
    assert "2 files" in capsys.readouterr().out
    samples = ad.WebDataset(convert(source, tmp_path / "c", "webdataset", "--compression", "GZIP"))
    assert [sample["json"] for sample in samples] == ROWS
    records = convert(source, tmp_path / "d", "tfrecord")
    assert ad.decode_example(next(iter(ad.TFRecordDataset(records))))["name"].tolist() == [b"#0"]
    again = convert(Path(convert(tmp_path / "c", tmp_path / "e", "webdataset")[0]), tmp_path / "f", "jsonl")
    assert [row["json"] for row in ad.JsonLinesDataset(again)] == ROWS


def test_pictures_become_samples(tmp_path: Path) -> None:
    names = convert(pictures(tmp_path / "a"), tmp_path / "b", "webdataset")
    assert [(sample["jpg"][2:5], sample["cls"]) for sample in ad.WebDataset(names)] == [
        (b"cat", 0),
        (b"cat", 0),
        (b"dog", 1),
        (b"dog", 1),
        (b"dog", 1),
    ]


def test_arrays_and_text(tmp_path: Path) -> None:
    (found,) = convert(npy(tmp_path / "a"), tmp_path / "b", "jsonl")
    assert list(ad.JsonLinesDataset(found))[4] == {"values": [8, 9]}
    (found,) = convert(npy(tmp_path / "c"), tmp_path / "d", "webdataset")
    assert list(ad.WebDataset(found))[4]["npy"].tolist() == [8, 9]
    (found,) = convert(text(tmp_path / "e"), tmp_path / "f", "jsonl")
    assert list(ad.JsonLinesDataset(found))[1] == {"text": "two"}


@pytest.mark.formats
def test_examples_become_columns_and_columns_lines(tmp_path: Path) -> None:
    names = convert(tfrecord(tmp_path / "a"), tmp_path / "b", "parquet", "--compression", "ZSTD")
    assert [(row["id"], row["name"]) for row in ad.ParquetDataset(names)] == [
        (row["id"], row["name"].encode()) for row in ROWS
    ]
    names = convert(parquet(tmp_path / "c"), tmp_path / "d", "jsonl")
    assert list(ad.JsonLinesDataset(names)) == ROWS


def test_what_a_format_cannot_hold_is_an_error(tmp_path: Path, capsys: Capture) -> None:
    source = tar(tmp_path / "a")
    assert main(["convert", str(pictures(tmp_path / "p")), str(tmp_path / "b"), "--to", "jsonl"]) == 1
    assert "write_jsonl: bytes cannot be represented in JSON" in capsys.readouterr().err
    assert main(["convert", str(source), "http://example.org/x", "--to", "jsonl"]) == 2


def test_csv_is_converted_without_loss(tmp_path: Path) -> None:
    """Types hold for all records, not for the first hundred; digits, missing numbers and zeros in front are kept."""
    lines = [f'{number},0.1234567890{number},{number:05},"a,""b"" ü",,{10**20 + number}' for number in range(150)]
    lines[140] = ",1e-7,12345,,x,7"
    (tmp_path / "a.csv").write_text("n,f,zip,text,late,long\n" + "\n".join(lines) + "\n")
    assert main(["convert", str(tmp_path / "a.csv"), str(tmp_path / "out"), "--to", "jsonl", "--shards", "2"]) == 0
    found = list(ad.JsonLinesDataset(ad.Dataset.list_files(f"{tmp_path}/out/*.jsonl", shuffle=False)))
    text = {"text": 'a,"b" ü', "late": ""}
    first = {"n": 7, "f": 0.12345678907, "zip": "00007", **text, "long": "100000000000000000007"}
    assert found[7] == first
    assert found[140] == {"n": None, "f": 1e-7, "zip": "12345", "text": "", "late": "x", "long": "7"}
    assert len(found) == 150


def test_csv_that_is_not_utf_8_and_csv_with_a_byte_order_mark(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "a.csv").write_bytes(b"n,f\n1,x\n2,\xff\n")
    assert main(["convert", str(tmp_path / "a.csv"), str(tmp_path / "a"), "--to", "jsonl"]) == 1
    assert "'utf-8' codec can't decode byte 0xff" in capsys.readouterr().err
    (tmp_path / "b.csv").write_bytes(b"\xef\xbb\xbfn,f\r\n1,x\r\n")
    assert main(["convert", str(tmp_path / "b.csv"), str(tmp_path / "b"), "--to", "jsonl"]) == 0
    assert list(ad.JsonLinesDataset(tmp_path / "b" / "00000.jsonl")) == [{"n": 1, "f": "x"}]


def test_an_option_of_a_store_is_a_name_and_a_value(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["inspect", "s3://b/x", "--storage-option", "endpoint"])
    assert "it must be NAME=VALUE, as endpoint=" in capsys.readouterr().err
    pytest.importorskip("obstore")
    assert main(["inspect", "s3://b/x", "--storage-option", "endpint=http://127.0.0.1:1"]) == 2
    assert "no option 'endpint'; the options are" in capsys.readouterr().err


def test_options_of_the_connection_are_given_like_others() -> None:
    pytest.importorskip("obstore")
    pairs = [("region", "eu-central-1"), ("timeout", "5s"), ("allow_http", "true")]
    found = storage_options(pairs)
    assert found == {"region": "eu-central-1", "client_options": {"timeout": "5s", "allow_http": "true"}}
    assert storage_options([]) is None
    store_for("s3://b/x", StorageOptions.of("read_file", {**found, "skip_signature": "true"}))
