"""Files of 4 GB of each format, of little room where they can be, and a program that reads one and tells its memory.

    python -m tests.formats.large FORMAT PATH

It reads all but the last element, goes on from a state with a dataset of its own, and prints how many elements there
were, of how many bytes, how many were left, and by how many bytes memory has grown.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import sys
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import asyncdata as ad
from asyncdata.formats.compression import zstd_module
from asyncdata.formats.tfrecord import frame

__all__ = ("LARGE", "Large")

MIB = 1 << 20
COUNT = 4100
"""Elements of 1 MiB: the last ones lie behind 4 GiB, where an offset needs more than 32 bits."""

BUDGET = 128 * MIB

LARGER = 700 * MIB
"""Of what is asked for 256 elements at once, two such groups, and sixteen files of 10 MiB that are read at once."""
ROW_GROUPS = 500 * MIB
"""Row groups of 25 MB are decoded as a whole: how many are in memory at once depends on how busy the machine is."""

LINES = json.dumps({"text": "x" * (MIB - 13)}).encode() + b"\n"


@dataclass(frozen=True)
class Large:
    """How a file is made and read, and how many elements it has."""

    make: Callable[[Path], None]
    read: Callable[[Path], ad.Dataset[Any]]
    count: int = COUNT
    needs: str | None = None
    resumes: bool = True
    """Whether it is gone on with at the last element; what is compressed is read from its beginning for that."""
    most: int = 300 * MIB
    """By how many bytes memory may grow."""
    mapped: bool = False
    """Whether all of the file counts as memory, which the system takes back when it needs it."""


def repeated(path: Path, content: bytes, times: int) -> None:
    with path.open("wb") as file:
        for _ in range(times):
            file.write(content)


def holes(path: Path, before: bytes, each: bytes, skipped: int, behind: bytes, times: int, end: bytes) -> None:
    """Write parts of a file between which there are zeros, which take no room."""
    with path.open("wb") as file:
        file.write(before)
        for _ in range(times):
            file.write(each)
            file.seek(skipped, os.SEEK_CUR)
            file.write(behind)
        file.write(end)


def lines(path: Path) -> None:
    repeated(path, LINES, COUNT)


def packed(compress: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Write records, which take a third of the time of lines."""
    return lambda path: repeated(path, compress(frame(bytes(MIB)) * 50), COUNT // 50)


def records(path: Path) -> None:
    framed = frame(bytes(MIB))
    holes(path, b"", framed[:12], MIB, framed[-4:], COUNT, b"")


def archive(path: Path) -> None:
    with path.open("wb") as file:
        for number in range(COUNT):
            info = tarfile.TarInfo(f"{number:06}.bin")
            info.size = MIB
            file.write(info.tobuf())
            file.seek(MIB, os.SEEK_CUR)
        file.write(bytes(1024))


def parquet(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    group = pa.table({"bin": pa.array([bytes(MIB)] * 25)})
    with pq.ParquetWriter(path, group.schema, compression="zstd", use_dictionary=False, write_statistics=False) as file:
        for _ in range(COUNT // 25):
            file.write_table(group)


def arrow(path: Path) -> None:
    """Write a stream: each batch begins with its offsets, the rest of it are zeros."""
    import pyarrow as pa

    batch = pa.RecordBatch.from_pydict({"bin": pa.array([bytes(MIB)] * 10)})
    schema, message = batch.schema.serialize().to_pybytes(), batch.serialize().to_pybytes()
    begin = message.rstrip(b"\0")
    holes(path, schema, begin, len(message) - len(begin), b"", COUNT // 10, b"\xff\xff\xff\xff\0\0\0\0")


def array(path: Path) -> None:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (COUNT, MIB)})
    path.write_bytes(file.getvalue())
    os.truncate(path, len(file.getvalue()) + COUNT * MIB)


def tensors(path: Path) -> None:
    header = json.dumps({"x": {"dtype": "U8", "shape": [COUNT, MIB], "data_offsets": [0, COUNT * MIB]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(path, 8 + len(header) + COUNT * MIB)


def lance(path: Path) -> None:
    """Write rows that take no room: a group of them is limited by what it is decoded."""
    import lance
    import pyarrow as pa

    schema = pa.schema([pa.field("bin", pa.binary(), metadata={"lance-encoding:compression": "zstd"})])
    batch = pa.record_batch([pa.array([bytes(MIB)] * 10)], schema)
    batches = pa.RecordBatchReader.from_batches(schema, [batch] * (COUNT // 10))
    lance.write_dataset(batches, path, max_rows_per_file=500, data_storage_version="2.1")


def zarr(path: Path) -> None:
    import zarr

    zarr.create_array(store=str(path), shape=(COUNT, MIB), chunks=(8, MIB), dtype="uint8")[:40] = 7


def array_records(path: Path) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(path), "group_size:1,zstd:1")
    for _ in range(COUNT):
        writer.write(bytes(MIB))
    writer.close()


def folder(path: Path) -> None:
    for number in range(COUNT // 10):
        place = path / "zeros" / f"{number:04}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
        os.truncate(place, 10 * MIB)


def tokens(path: Path) -> None:
    path.touch()
    os.truncate(path, COUNT * MIB)


def shards(path: Path, suffix: str, text: bytes) -> list[str]:
    """Write shards of 50 samples: where these begin, `text`, and after the size of each sample a hole."""
    path.mkdir()
    begins = 4 * (50 + 2) + len(text) + np.arange(50 + 1) * (4 + MIB)
    header = np.array([50, *begins], "<u4").tobytes() + text
    places = [path / f"shard.{number:05}.{suffix}" for number in range(COUNT // 50)]
    for place in places:
        holes(place, header, MIB.to_bytes(4, "little"), MIB, b"", 50, b"")
        os.truncate(place, int(begins[-1]))
    return [place.name for place in places]


def mosaic(path: Path) -> None:
    stated = {"column_names": ["x"], "column_encodings": ["bytes"], "column_sizes": [None]}
    shards(path, "mds", json.dumps(stated).encode())


def litdata(path: Path) -> None:
    leaf = {"type": None, "context": None, "children_spec": []}
    spec = json.dumps([1, {"type": "builtins.dict", "context": '["x"]', "children_spec": [leaf]}])
    chunks = [{"filename": name, "chunk_size": 50, "dim": None} for name in shards(path, "bin", b"")]
    config = {"data_format": ["bytes"], "data_spec": spec, "compression": None}
    (path / "index.json").write_text(json.dumps({"chunks": chunks, "config": config}))


def rows(path: Path) -> None:
    holes(path, b"", b"", MIB - 1, b"\n", COUNT, b"")


def sql(path: Path) -> ad.Dataset[Any]:
    """Read rows that the database makes."""
    query = f"""WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers LIMIT {COUNT})
    SELECT printf('%.*c', {MIB}, 'x') FROM numbers"""
    return ad.experimental.SqlDataset("sqlite", path, query, [str])


def hdf5(path: Path) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("x", (COUNT, MIB), "u1", chunks=(8, MIB))


def hdf5_rows(path: Path) -> ad.Dataset[Any]:
    import h5py

    return ad.Dataset.from_source(h5py.File(path)["x"])


def tfds(path: Path) -> None:
    path.mkdir()
    count = COUNT // 50
    info = {"name": "zeros", "splits": [{"name": "train", "shardLengths": ["50"] * count}]}
    (path / "dataset_info.json").write_text(json.dumps(info))
    (path / "features.json").write_text(json.dumps({"featuresDict": {"features": {"x": {"text": {}}}}}))
    framed = frame(ad.make_example({"x": bytes(MIB)}))
    begin, end = framed[:-MIB], framed[-4:]
    for number in range(count):
        place = path / f"zeros-train.tfrecord-{number:05}-of-{count:05}"
        holes(place, begin, b"", MIB - 4, end + begin, 49, b"")
        with place.open("r+b") as file:
            file.seek(50 * len(framed) - 4)
            file.write(end)


def energon(path: Path) -> None:
    """Write one archive with the index that `energon prepare` makes."""
    meta = path / ".nv-meta"
    meta.mkdir(parents=True)
    archive(path / "zeros.tar")
    begins = np.arange(COUNT + 1, dtype="<u8") * (MIB + tarfile.BLOCKSIZE)
    (path / "zeros.tar.idx").write_bytes(begins.tobytes())
    (meta / "split.json").write_text(json.dumps({"split_parts": {"train": ["zeros.tar"]}}))


def energon_samples(path: Path) -> ad.Dataset[Any]:
    return ad.EnergonDataset(path, "train", index=True, repeat=False)


def nothing(path: Path) -> None:
    path.touch()


class Zeros:
    """A map-style dataset as PyTorch has them."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> bytes:
        return bytes(MIB)

    def __getitems__(self, indices: Sequence[int]) -> list[bytes]:
        return [bytes(MIB) for _ in indices]


def hugging_face(path: Path) -> ad.Dataset[Any]:
    import datasets

    return ad.Dataset.from_source(datasets.Dataset.from_file(str(path)))


LARGE: dict[str, Large] = {
    "jsonl": Large(lines, ad.JsonLinesDataset),
    "tfrecord": Large(records, ad.TFRecordDataset),
    "tfrecord.gz": Large(packed(gzip.compress), ad.TFRecordDataset, resumes=False),
    "tfrecord.zst": Large(
        packed(lambda data: zstd_module().compress(data)), ad.TFRecordDataset, needs="backports", resumes=False
    ),
    "tar": Large(archive, ad.WebDataset),
    "parquet": Large(parquet, ad.ParquetDataset, needs="pyarrow", most=ROW_GROUPS),
    "arrow": Large(arrow, ad.ArrowDataset, needs="pyarrow"),
    "npy": Large(array, ad.NpyDataset),
    "safetensors": Large(tensors, ad.SafetensorsDataset),
    "mds": Large(mosaic, lambda path: ad.MdsDataset(sorted(path.glob("*.mds")))),
    "litdata": Large(litdata, ad.LitDataset),
    "tfds": Large(tfds, lambda path: ad.TfdsDataset(path, "train")),
    "energon": Large(energon, energon_samples),
    "csv": Large(rows, lambda path: ad.experimental.CsvDataset(path, [str])),
    "sql": Large(nothing, sql),
    "hdf5": Large(hdf5, hdf5_rows, needs="h5py"),
    "bin": Large(tokens, lambda path: ad.TokenDataset(path, MIB // 2, dtype="uint16")),
    "lance": Large(lance, ad.LanceDataset, needs="lance", most=ROW_GROUPS),
    "zarr": Large(zarr, ad.ZarrDataset, needs="zarr"),
    "array_record": Large(array_records, ad.ArrayRecordDataset, needs="array_record", most=LARGER),
    "folder": Large(folder, ad.ImageFolderDataset, COUNT // 10, most=LARGER),
    "datasets": Large(arrow, hugging_face, needs="datasets", mapped=True),
    "pytorch": Large(nothing, lambda _: ad.Dataset.from_source(Zeros())),
}
"""Formats by their extension. A `.npz` file is read whole: it has a limit instead."""


def memory(what: str) -> int:
    """Return bytes of this process's memory that /proc tells (Linux)."""
    (found,) = re.findall(rf"^{what}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found) * 1024


def size_of(element: Any) -> int:
    """Return of how many bytes an element is."""
    if isinstance(element, dict):
        return sum(size_of(value) for name, value in element.items() if name != "__key__")
    return element.nbytes if isinstance(element, np.ndarray) else len(element)


def main(name: str, path: Path) -> None:
    """Read a file and print what is found."""
    large = LARGE[name]
    before, most = memory("RssAnon"), 0
    sizes: list[int] = []

    def read(ds: Any, count: int) -> dict[str, Any]:
        nonlocal most
        for _ in range(count):
            element = next(ds)
            sizes.append(size_of(element[0] if isinstance(element, tuple) else element))
            most = max(most, memory("RssAnon"))
        return ds.state_dict()

    bounded = ad.Options(ram_budget=BUDGET)
    with large.read(path).with_options(bounded).iterate() as elements:
        state = json.loads(json.dumps(read(elements, large.count - 1)))
        if not large.resumes:
            read(elements, 1)
        left = 0 if large.resumes else len([*elements])
    if large.resumes:
        with large.read(path).with_options(bounded).iterate(state=state) as elements:
            read(elements, 1)
            left = len([*elements])
    grown = most if large.mapped else memory("VmHWM")
    print(json.dumps({"count": len(sizes), "bytes": sum(sizes), "left": left, "grown": grown - before}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
