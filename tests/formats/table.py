"""Every format of files in one table: how a small file of it is written, and how it is read."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.formats.compression import zstd_module
from asyncdata.formats.tfrecord import frame
from tests.mds import mds_shard
from tests.safetensors import safetensors_of

__all__ = ("FORMATS", "Format")

Numbers = Sequence[int]
Read = Callable[..., ad.Dataset[Any]]


@dataclass(frozen=True)
class Format:
    """A format whose element for each number is known."""

    content: Callable[[Numbers], bytes]
    """What a file holds that has elements for these numbers."""
    read: Read
    """Read files, in order or by `index=True`."""
    element: Callable[[int], Any]
    indexed: bool = True
    """Whether there is random access."""
    needs: str | None = None
    """The package that it needs, which tests marked `formats` have."""

    checksums: Callable[[bytes], range] | None = None
    """Which bytes of a file have checksums."""
    checked_at_end: bool = False
    """Whether the checksum is at the end of a file, so that other elements may come before the error."""

    def write(self, path: Path, numbers: Numbers) -> Path:
        path.write_bytes(self.content(numbers))
        return path


# ---------------------------------------------------------------------------------------------------------------------
# What files hold


def row(number: int) -> dict[str, Any]:
    return {"id": number, "name": f"#{number}"}


def json_lines(numbers: Numbers) -> bytes:
    return "".join(json.dumps(row(number)) + "\n" for number in numbers).encode()


def archive(numbers: Numbers) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        for number in numbers:
            for extension, content in (("txt", f"#{number}"), ("cls", f"{number}")):
                info = tarfile.TarInfo(f"{number:03}.{extension}")
                info.size = len(content)
                made.addfile(info, io.BytesIO(content.encode()))
    return file.getvalue().rstrip(b"\0") + bytes(512 + 1024)  # and not a multiple of 10 KB


def table(numbers: Numbers) -> Any:
    pa = pytest.importorskip("pyarrow")
    return pa.table({"id": pa.array(numbers, pa.int64()), "name": [f"#{number}" for number in numbers]})


def parquet(numbers: Numbers) -> bytes:
    pq, file = pytest.importorskip("pyarrow.parquet"), io.BytesIO()
    pq.write_table(table(numbers), file, row_group_size=3, write_page_checksum=True)
    return file.getvalue()


def arrow(numbers: Numbers, kind: str = "new_file") -> bytes:
    ipc, file, rows = pytest.importorskip("pyarrow").ipc, io.BytesIO(), table(numbers)
    with getattr(ipc, kind)(file, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=3)
    return file.getvalue()


def array(numbers: Numbers) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([[number, -number] for number in numbers], np.int16).reshape(-1, 2))
    return file.getvalue()


def arrays(numbers: Numbers) -> bytes:
    file = io.BytesIO()
    np.savez(file, x=np.array(numbers, np.int16), y=np.array(numbers) / 2)
    return file.getvalue()


def array_record(numbers: Numbers) -> bytes:
    module = pytest.importorskip("array_record.python.array_record_module")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.array_record")
        writer = module.ArrayRecordWriter(str(path), "group_size:2")
        for number in numbers:
            writer.write(record(number))
        writer.close()
        return path.read_bytes()


def mds(numbers: Numbers) -> bytes:
    columns = {"id": ("int", 8), "name": ("str", None)}
    return mds_shard(columns, [[np.int64(number).tobytes(), f"#{number}".encode()] for number in numbers])


def tensors(numbers: Numbers) -> bytes:
    return safetensors_of({"x": np.array(numbers, np.int16), "y": np.array(numbers) / 2})


def zstd(data: bytes) -> bytes:
    """Compress as the program zstd does, with a checksum."""
    module = zstd_module()
    return module.compress(data, options={module.CompressionParameter.checksum_flag: 1})


def every_byte(content: bytes) -> range:
    return range(len(content))


def pages(content: bytes) -> range:
    """Return where the pages of Parquet are, between the mark and the metadata."""
    return range(4, len(content) - 8 - int.from_bytes(content[-8:-4], "little"))


# ---------------------------------------------------------------------------------------------------------------------
# How they are read


def by(dataset: Any) -> Read:
    def read(paths: Sequence[Path], index: bool = False) -> ad.Dataset[Any]:
        return dataset(paths, index=True) if index else dataset(paths)

    return read


def array_records(paths: Sequence[Path], index: bool = False) -> ad.Dataset[Any]:
    return ad.ArrayRecordDataset(paths)


def rows_of_tensors(paths: Sequence[Path], index: bool = False) -> ad.Dataset[Any]:
    return ad.SafetensorsDataset(paths)


def hugging_face(paths: Sequence[Path], index: bool = False) -> ad.Dataset[Any]:
    datasets = pytest.importorskip("datasets")
    return ad.Dataset.from_source(datasets.concatenate_datasets([datasets.Dataset.from_file(str(p)) for p in paths]))


class MapStyle:
    """As PyTorch's map-style datasets are, with what its loaders ask for."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.rows = [line for path in paths for line in path.read_bytes().splitlines()]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return json.loads(self.rows[index])

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return [self[index] for index in indices]


def map_style(paths: Sequence[Path], index: bool = False) -> ad.Dataset[Any]:
    return ad.Dataset.from_source(MapStyle(paths))


def sample(number: int) -> dict[str, Any]:
    return {"__key__": f"{number:03}", "txt": f"#{number}", "cls": number}


def pair(number: int) -> dict[str, Any]:
    return {"x": np.int16(number), "y": number / 2}


def record(number: int) -> bytes:
    return b"%05d" % number * 9


FORMATS: dict[str, Format] = {
    "jsonl": Format(json_lines, by(ad.JsonLinesDataset), row),
    "jsonl.gz": Format(
        lambda numbers: gzip.compress(json_lines(numbers)),
        by(ad.JsonLinesDataset),
        row,
        indexed=False,
        checksums=every_byte,
        checked_at_end=True,
    ),
    "jsonl.zst": Format(
        lambda numbers: zstd(json_lines(numbers)),
        by(ad.JsonLinesDataset),
        row,
        indexed=False,
        needs="backports",
        checksums=every_byte,
        checked_at_end=True,
    ),
    "tfrecord": Format(
        lambda numbers: b"".join(frame(record(number)) for number in numbers),
        by(ad.TFRecordDataset),
        record,
        checksums=every_byte,
    ),
    "tar": Format(archive, by(ad.WebDataset), sample),
    "parquet": Format(parquet, by(ad.ParquetDataset), row, needs="pyarrow", checksums=pages),
    "arrow": Format(arrow, by(ad.ArrowDataset), row, indexed=False, needs="pyarrow"),
    "arrows": Format(
        lambda numbers: arrow(numbers, "new_stream"), by(ad.ArrowDataset), row, indexed=False, needs="pyarrow"
    ),
    "npy": Format(array, by(ad.NpyDataset), lambda number: [number, -number]),
    "npz": Format(arrays, by(ad.NpyDataset), pair, checksums=every_byte),
    "mds": Format(mds, by(ad.MdsDataset), row),
    "safetensors": Format(tensors, rows_of_tensors, pair),
    "array_record": Format(array_record, array_records, record, needs="array_record", checksums=every_byte),
    "datasets": Format(lambda numbers: arrow(numbers, "new_stream"), hugging_face, row, needs="datasets"),
    "pytorch": Format(json_lines, map_style, row),
}
"""Formats by their extension."""
