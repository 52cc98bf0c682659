"""Tar archives of samples, and Parquet files, that a dataset is written to."""

from __future__ import annotations

import datetime
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.errors import PlanError, StructureError
from asyncdata.storage import sinks
from tests.persistence.test_shards import visible


def sample(x: int) -> dict[str, Any]:
    return {
        "__key__": f"train/{x:05}",
        "jpg": b"\xff\xd8" + bytes([x % 256]) * (x * 7 % 600),
        "txt": f"größe {x}",
        "cls": np.int64(x % 10),
        "meta.json": {"x": x, "v": [1.5, None]},
        "npy": np.arange(x % 5, dtype=np.float32),
    }


def samples(count: int = 40) -> ad.Dataset[dict[str, Any]]:
    return ad.Dataset.range(count).shuffle(seed=1).map(sample)


def same(one: Any, other: Any) -> bool:
    return json.dumps(one, default=told) == json.dumps(other, default=told)


def told(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return [str(value.dtype), value.tolist()] if isinstance(value, np.ndarray) else value.item()


@pytest.mark.parametrize("compression", [None, "GZIP"])
@pytest.mark.parametrize("shards", [1, 7, 50, None])
def test_archives_give_the_dataset(tmp_path: Path, shards: int | None, compression: str | None) -> None:
    names = samples().write_webdataset(tmp_path, shards, compression, shard_bytes=30_000)
    assert len(names) == (shards or 7)
    assert same(list(ad.WebDataset(names)), list(samples()))
    assert [os.path.basename(name) for name in names] == visible(tmp_path)
    with tarfile.open(names[0]) as archive:
        members = archive.getmembers()
        assert [member.name for member in members[:5]] == [
            f"{next(iter(samples()))['__key__']}.{extension}" for extension in ("jpg", "txt", "cls", "meta.json", "npy")
        ]


def test_samples_without_a_key_have_their_number(tmp_path: Path) -> None:
    ds = ad.Dataset.range(5).map(lambda x: {"cls": x, "__url__": "left out"})
    names = ds.write_webdataset(tmp_path, shards=2)
    assert list(ad.WebDataset(names)) == [{"__key__": f"{x:09}", "cls": x} for x in range(5)]


def test_names_of_any_length(tmp_path: Path) -> None:
    keys = ["a" * 90, "b" * 200, "ü/" * 60 + "c", "d/" * 120 + "e" * 120, "f" * 3000]
    rows = [{"__key__": key, "bin": key.encode()} for key in keys]
    names = ad.Dataset.from_generator(lambda: iter(rows)).write_webdataset(tmp_path)
    assert list(ad.WebDataset(names)) == rows
    with tarfile.open(names[0]) as archive:
        assert [member.name for member in archive] == [f"{key}.bin" for key in keys]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (3, "needs samples: dicts"),
        ({"__key__": "a.b", "txt": "x"}, "cannot be read back"),
        ({"__key__": "a", "TXT": "x"}, "cannot be read back"),
        ({"__key__": "a", "x/txt": "x"}, "cannot be read back"),
        ({"__key__": "", "txt": "x"}, "cannot be read back"),
        ({"__key__": "__a__/b", "txt": "x"}, "cannot be read back"),
        ({"__key__": "a\0", "txt": "x"}, "cannot be read back"),
        ({"__key__": "ok", "txt": "x"}, "the previous sample also has the __key__ 'ok'"),
        ({"__key__": "a"}, "nothing but its key"),
        ({"__key__": "a", "txt": 3}, "a str is needed"),
        ({"__key__": "a", "cls": 1.5}, "cannot be interpreted as an integer"),
        ({"__key__": "a", "json": {1, 2}}, "cannot be represented in JSON"),
        ({"__key__": "a", "npy": [1]}, "an array is needed"),
        ({"__key__": "a", "npy": np.ma.masked_array([1], [True])}, "mask would be lost"),
        ({"__key__": "a", "npy": np.array([{}])}, "Object arrays cannot be saved"),
        ({"__key__": "a", "jpg": np.zeros(3)}, r"a member .jpg needs bytes, got ndarray"),
        ({"__key__": "a", "pkl": {"x": 1}}, r"a member .pkl needs bytes"),
    ],
)
def test_what_would_not_be_read_as_it_is_written(tmp_path: Path, wrong: Any, message: str) -> None:
    with pytest.raises(StructureError, match=message) as caught:
        ad.Dataset.from_generator(lambda: iter([{"__key__": "ok", "txt": ""}, wrong])).write_webdataset(tmp_path)
    assert caught.value.__notes__ == ["element 1 of the dataset"]
    assert visible(tmp_path) == []


@pytest.mark.integrations
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int4"])
def test_dtypes_that_npy_would_lose_are_refused(tmp_path: Path, name: str) -> None:
    kind = getattr(pytest.importorskip("ml_dtypes"), name)
    for place, array in enumerate((np.ones(2, kind), np.ones((), kind)[()], np.zeros(2, [("a", kind)]))):
        with pytest.raises(StructureError, match=f"a dtype of another package, .*{name}.*, would be lost"):
            ad.Dataset.from_iterable([{"__key__": "a", "npy": array}]).write_webdataset(tmp_path / str(place))


def test_samples_that_would_be_read_as_parts_of_one_are_refused(tmp_path: Path) -> None:
    rows = [{"__key__": "a", "txt": ""}, {"__key__": "b", "txt": ""}, {"__key__": "a", "txt": "again"}]
    names = ad.Dataset.from_list(rows).write_webdataset(tmp_path / "whole")
    assert list(ad.WebDataset(names)) == rows
    wrong = ad.Dataset.from_iterable([*rows[:2], {"__key__": "a", "cls": 1}])
    with pytest.raises(StructureError, match="an earlier sample also has the __key__ 'a', with other members"):
        wrong.write_webdataset(tmp_path / "parts")


@pytest.mark.formats
def test_webdataset_reads_the_archives(tmp_path: Path) -> None:
    wds = pytest.importorskip("webdataset")
    names = samples().write_webdataset(tmp_path, shards=3)
    files = [open(name, "rb") for name in names]  # noqa: SIM115  which the package itself would leave open
    opened = [{"url": name, "stream": file} for name, file in zip(names, files)]
    plain = [*wds.tariterators.group_by_keys(wds.tariterators.tar_file_expander(opened))]
    for file in files:
        file.close()
    decode = wds.autodecode.Decoder([])
    found = [decode(dict(row)) for row in plain]
    for theirs, ours in zip(found, samples(), strict=True):
        assert same({**{name: theirs[name] for name in ours}, "jpg": ours["jpg"]}, ours)
    assert [row["jpg"] for row in plain] == [row["jpg"] for row in samples()]


KILLED = """
import os, signal, sys
import asyncdata as ad
def fn(x):
    if x == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return {"cls": x, "bin": b"%05d" % x * 1000} if sys.argv[3] == "tar" else {"id": x, "bin": b"%05d" % x * 1000}
ds = ad.Dataset.range(1000).shuffle(seed=3).map(fn)
names = getattr(ds, {"tar": "write_webdataset", "parquet": "write_parquet"}[sys.argv[3]])(sys.argv[1], shards=5)
"""


@pytest.mark.parametrize("form", ["tar", pytest.param("parquet", marks=pytest.mark.formats)])
@pytest.mark.slow
def test_killed_and_gone_on_with_gives_the_files_of_one_run(tmp_path: Path, form: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    sums: list[list[str]] = []
    for folder, stops in (("a", ["700", "-1"]), ("b", ["-1"])):
        for stop in stops:
            command = [sys.executable, "-c", KILLED, str(tmp_path / folder), stop, form]
            ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
            assert ran.returncode == (-signal.SIGKILL if stop == "700" else 0), ran.stderr
            reader: Any = ad.WebDataset if form == "tar" else ad.ParquetDataset
            for name in visible(tmp_path / folder):
                assert len(list(reader(tmp_path / folder / name))) == 200
        folder_names = visible(tmp_path / folder)
        sums.append([hashlib.sha256((tmp_path / folder / name).read_bytes()).hexdigest() for name in folder_names])
        assert not list((tmp_path / folder).glob(".*.partial"))
    assert len(sums[0]) == 5
    assert sums[0] == sums[1]


# ---------------------------------------------------------------------------------------------------------------------
# Parquet


def row(x: int) -> dict[str, Any]:
    return {
        "id": np.int32(x),
        "half": x / 2,
        "name": f"ü{x}",
        "raw": bytes([x % 256]) * (x % 9),
        "feature": np.arange(3, dtype=np.float32) + x,
        "image": np.full((2, 3), x, np.uint8),
        "tokens": np.arange(x % 4),
        "who": {"age": x, "tags": ["a"] * (x % 3)},
        "maybe": None if x % 5 == 0 else x,
        "gone": np.ones(2) if x % 4 else None,
    }


def rows(count: int = 60) -> ad.Dataset[dict[str, Any]]:
    return ad.Dataset.range(count).shuffle(seed=1).map(row)


@pytest.mark.formats
@pytest.mark.parametrize("shards", [1, 7, 100, None])
def test_parquet_files_give_the_dataset(tmp_path: Path, shards: int | None) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    names = rows().write_parquet(tmp_path, shards, shard_bytes=1200)
    assert len(names) == (shards or len(names)) > (shards is None)
    for found, made in zip(ad.ParquetDataset(names), rows(), strict=True):
        tags = found["who"].pop("tags")
        made["who"].pop("tags")
        assert list(tags) == ["a"] * (made["who"]["age"] % 3)
        assert same(found, made), (found, made)
    assert pq.ParquetDataset(names).read().column("half").to_pylist() == [made["half"] for made in rows()]
    assert len({str(pq.read_schema(name)) for name in names}) == 1
    batch = next(iter(ad.ParquetDataset(names, ["image", "feature"]).batch(1)))
    assert (batch["image"].shape, batch["image"].dtype) == ((1, 2, 3), np.uint8)
    assert batch["feature"].shape == (1, 3) or shards == 100  # where one row tells the types


@pytest.mark.formats
def test_a_schema_and_a_codec(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    schema = pa.schema([("id", pa.int16()), ("later", pa.float64())])
    values = [{"id": 1}, {"id": 2, "later": 2}]
    ds = ad.Dataset.from_generator(lambda: iter(values))
    (name,) = ds.write_parquet(tmp_path, compression_type="ZSTD", schema=schema)
    assert pq.read_table(name).schema.equals(schema)
    assert pq.read_metadata(name).row_group(0).column(0).compression == "ZSTD"
    assert list(ad.ParquetDataset(name)) == [{"id": 1, "later": None}, {"id": 2, "later": 2.0}]
    with pytest.raises(PlanError, match="compression_type"):
        ds.write_parquet(tmp_path, compression_type="LZMA")
    with pytest.raises(PlanError, match=r"must be a pyarrow\.Schema"):
        ds.write_parquet(tmp_path, schema={"id": int})


@pytest.mark.formats
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (3, "needs rows: dicts"),
        ({"id": "x"}, "the column 'id' is int64, which 'x' does not fit"),
        ({"id": 1.5}, "the column 'id' is int64, which 1.5 does not fit"),
        ({"id": 1, "more": 2}, "the column 'more', which was not in the first row group"),
        ({"v": np.ones((3, 1))}, "the column 'v'"),
        ({"m": np.ones((4, 1))}, r"the shape \(2, 2\) is needed"),
        ({"v": np.ma.masked_array([1.0, 2.0], [True, False])}, "mask would be lost"),
        ({"s": {"a": 1, "b": 2}}, "there is no field 'b'"),
        ({"t": [{"a": 1}, {"c": 2}]}, "there is no field 'c'"),
    ],
)
def test_rows_that_do_not_fit_the_first_ones(tmp_path: Path, wrong: Any, message: str) -> None:
    pytest.importorskip("pyarrow")
    first = {"id": 1, "v": np.ones(2), "m": np.ones((2, 2)), "s": {"a": 1}, "t": [{"a": 1}]}
    with pytest.raises(StructureError, match=message):
        ad.Dataset.from_generator(lambda: iter([first, wrong])).write_parquet(tmp_path, shard_bytes=1)
    assert visible(tmp_path) == ["00000.parquet"]


def write(folder: Path, values: list[Any], kind: Any = None) -> list[Any]:
    """Write values to a column, of a type if one is given, and read them."""
    pa = pytest.importorskip("pyarrow")
    schema = None if kind is None else pa.schema([("x", kind)])
    ds = ad.Dataset.from_generator(lambda: iter([{"x": value} for value in values]))
    return [row["x"] for row in ad.ParquetDataset(ds.write_parquet(folder, schema=schema))]


@pytest.mark.formats
@pytest.mark.parametrize(
    "values",
    [
        [np.arange(3, dtype=np.int32), None, np.arange(3, dtype=np.int32)],
        [np.array([True, False]), None, np.array([True, True])],
        [np.ones((2, 2), np.int8), None, np.ones((2, 2), np.int8)],
        [np.zeros(0), np.zeros(0), None],
        [np.datetime64("2020-01-01"), None],
        [np.array(["2020-01-01"], "M8[D]"), None],
        [{"day": np.datetime64("2020-01-01"), "at": np.datetime64(1, "ns")}, None],
        [np.timedelta64(1, "us"), None],
    ],
    ids=str,
)
def test_arrays_and_times_come_back_as_they_were(tmp_path: Path, values: list[Any]) -> None:
    assert repr(write(tmp_path, values)) == repr(values)


NOON = datetime.datetime(2020, 1, 1, 12, 0, 0, 7)


@pytest.mark.formats
@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("date32", NOON, "a part of the time would be lost"),
        ("timestamp s", NOON, "a part of the time would be lost"),
        ("duration s", datetime.timedelta(microseconds=7), "a part of the time would be lost"),
        ("timestamp us", NOON.replace(tzinfo=datetime.UTC), "with and without a time zone"),
        ("string", b"a", "str is needed, got bytes"),
        ("binary", "a", "bytes is needed, got str"),
        ("list_ bool_ 1", np.array([2]), "they are not booleans"),
        ("list_ int8 1", np.array([1.5]), "they are not integers"),
    ],
)
def test_a_value_that_would_be_changed_is_an_error(tmp_path: Path, kind: str, value: Any, message: str) -> None:
    """The first value fits, so the error names the second one."""
    pa = pytest.importorskip("pyarrow")
    name, *arguments = kind.split()
    inner = [getattr(pa, one)() if hasattr(pa, one) else int(one) if one.isdigit() else one for one in arguments]
    with pytest.raises(StructureError, match=message) as caught:
        write(tmp_path, [None, value], getattr(pa, name)(*inner))
    assert caught.value.__notes__ == ["element 1 of the dataset"]


@pytest.mark.formats
def test_what_parquet_cannot_hold(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(StructureError, match="must have values") as caught:
        write(tmp_path / "a", [np.zeros((0, 3)), np.zeros((0, 3))])
    assert caught.value.__notes__ == ["one of the elements 0 to 1 of the dataset"]
    with pytest.raises(StructureError, match="no lists of the fixed size 0"):
        write(tmp_path / "b", [[]], pa.list_(pa.int8(), 0))
    with pytest.raises(StructureError, match="no child field") as caught:
        write(tmp_path / "c", [{}])
    assert caught.value.__notes__ == ["element 0 of the dataset"]
    ds = ad.Dataset.from_generator(lambda: iter([{"x": 1}, {"x": None}]))
    with pytest.raises(StructureError, match="declared non-nullable"):
        ds.write_parquet(tmp_path / "d", schema=pa.schema([pa.field("x", pa.int64(), nullable=False)]))


@pytest.mark.formats
def test_columns_without_a_type(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for values, message in (
        ([np.ones((2, 2)), np.ones((3, 2))], "must have one shape"),
        ([np.ones(2), 3], "arrays of one dtype"),
        ([object()], "the column 'x' has no type"),
    ):
        with pytest.raises(StructureError, match=message):
            ad.Dataset.from_generator(lambda some=values: iter([{"x": v} for v in some])).write_parquet(tmp_path)
    assert ad.Dataset.range(0).map(row).write_parquet(tmp_path / "empty", shards=2)


@pytest.mark.formats
def test_many_row_groups_hold_memory_and_order(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    ds = ad.Dataset.range(300).map(lambda x: {"id": x, "raw": bytes(1 << 20)})
    (name,) = ds.write_parquet(tmp_path, shards=1)
    assert pq.read_metadata(name).num_row_groups == 10
    assert [found["id"] for found in ad.ParquetDataset(name, ["id"])] == list(range(300))


@pytest.mark.parametrize("form", ["tar", pytest.param("parquet", marks=pytest.mark.formats)])
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def write() -> list[str]:
        return samples().write_webdataset(tmp_path) if form == "tar" else rows().write_parquet(tmp_path)

    with monkeypatch.context() as patch:
        patch.setattr(sinks.LocalSink, "write", full)
        with pytest.raises(OSError, match="No space left"):
            write()
    assert visible(tmp_path) == []
    (name,) = write()
    assert os.path.getsize(name) > 1000


def test_tar_is_what_tarfile_writes(tmp_path: Path) -> None:
    (name,) = samples().write_webdataset(tmp_path)
    theirs = io.BytesIO()
    with tarfile.open(name) as archive, tarfile.open(fileobj=theirs, mode="w", format=tarfile.PAX_FORMAT) as copy:
        for member in archive:
            copy.addfile(member, archive.extractfile(member))
    data = Path(name).read_bytes()
    assert theirs.getvalue()[: len(data)] == data
