"""The format of files, recognised by their first bytes and their names, and the dataset that reads them."""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Final, TypeAlias

from asyncdata.cli.arrays_in_files import ZARR, is_zarr, rows_of_hdf5, rows_of_zarr
from asyncdata.dataset import Dataset
from asyncdata.errors import DataLossError, PlanError
from asyncdata.formats.compression import HEAD_BYTES, decompressor, not_supported, recognised
from asyncdata.formats.json_values import NO_JSON, json_value
from asyncdata.formats.npy import MAGIC as NPY
from asyncdata.formats.tar import BLOCK, member_of
from asyncdata.formats.tf_example import decode_example
from asyncdata.formats.tfrecord import HEADER, length_intact
from asyncdata.formats.tokens import MAGIC as TOKENS
from asyncdata.readers.array_record import ArrayRecordDataset
from asyncdata.readers.arrow import ArrowDataset
from asyncdata.readers.energon import EnergonDataset, energon_parts
from asyncdata.readers.image_folder import ImageFolderDataset
from asyncdata.readers.json_lines import JsonLinesDataset
from asyncdata.readers.lance import LanceDataset
from asyncdata.readers.lerobot import LeRobotDataset
from asyncdata.readers.litdata import LitDataset
from asyncdata.readers.make_csv_dataset import make_csv_dataset
from asyncdata.readers.mds import MdsDataset
from asyncdata.readers.npy import NpyDataset
from asyncdata.readers.parquet import ParquetDataset
from asyncdata.readers.safetensors import SafetensorsDataset
from asyncdata.readers.text_line import TextLineDataset
from asyncdata.readers.tfds import TfdsDataset
from asyncdata.readers.tfrecord import TFRecordDataset
from asyncdata.readers.tokens import TokenDataset
from asyncdata.readers.webdataset import WebDataset
from asyncdata.sources.listing import is_pattern, matching
from asyncdata.sources.tokens import index_path
from asyncdata.storage import StorageOptions, is_local, is_web, local_path, read_head, store_for, without_query
from asyncdata.storage.cached import blocking

__all__ = ("RecognisedFiles", "as_examples", "named", "recognise")

HEAD: Final = 1 << 16

RIEGELI: Final = bytes.fromhex("83af70d10d884a3f00000000000000004000000000000000")
"""The first bytes of ArrayRecord files."""

Storage: TypeAlias = Mapping[str, str] | None
"""The options of an object store."""


def csv_records(names: list[str], *, storage_options: Storage = None) -> Dataset[Any]:
    patterns = [*map(named, names)]
    return make_csv_dataset(patterns, 1, num_epochs=1, shuffle=False, storage_options=storage_options).unbatch()


def documents(names: list[str], *, storage_options: Storage = None) -> Dataset[Any]:
    """Return the documents of Megatron's files, each of which is named, or its index, or both."""
    paths = [f"{name.removesuffix('.idx')}.bin" if name.endswith(".idx") else name for name in names]
    return TokenDataset([*dict.fromkeys(paths)], storage_options=storage_options)


READERS: Final[dict[str, Callable[..., Dataset[Any]]]] = {
    "Parquet": ParquetDataset,
    "Arrow": ArrowDataset,
    "NumPy": NpyDataset,
    "MDS": MdsDataset,
    "safetensors": SafetensorsDataset,
    "Megatron's tokens": documents,
    "ArrayRecord": ArrayRecordDataset,
    "WebDataset": WebDataset,
    "TFRecord": TFRecordDataset,
    "JSON Lines": JsonLinesDataset,
    "text": TextLineDataset,
    "CSV": csv_records,
    "HDF5": rows_of_hdf5,
}


def saved_elements(folder: str, **_: Any) -> Dataset[Any]:
    """Return the elements of a saved dataset, which must be on this machine."""
    return Dataset[Any].load(folder)


def energon_samples(folder: str, *, storage_options: Storage = None) -> Dataset[Any]:
    """Return the samples of all parts of a folder of Energon's."""
    how: dict[str, Any] = {"dataset_config": None, "storage_options": storage_options}
    parts = energon_parts(folder, StorageOptions.of("EnergonDataset", storage_options))
    return reduce(Dataset[Any].concatenate, [EnergonDataset(folder, part, **how) for part in parts])


def tfds_samples(folder: str, *, storage_options: Storage = None) -> Dataset[Any]:
    """Return the samples of all splits of a folder of TensorFlow Datasets."""
    return TfdsDataset(folder, "all", storage_options=storage_options)


INSIDE: Final = ("meta/info.json", ".nv-meta/split.yaml", ".nv-meta/split.json")
"""Files within folders of a folder, by which LeRobot's and Energon's are known."""

FOLDERS: Final[dict[str, tuple[Callable[[Sequence[str]], bool], Callable[..., Dataset[Any]]]]] = {
    "saved dataset": (lambda names: "dataset.json" in names, saved_elements),
    "Energon's WebDataset": (lambda names: bool({*INSIDE[1:]} & {*names}), energon_samples),
    "MDS": (lambda names: "index.json" in names and any(".mds" in name for name in names), MdsDataset),
    "LeRobot": (lambda names: INSIDE[0] in names, LeRobotDataset),
    "TensorFlow Datasets": (lambda names: {"dataset_info.json", "features.json"} <= {*names}, tfds_samples),
    "LitData": (
        lambda names: "index.json" in names and any(name.startswith("chunk-") for name in names),
        LitDataset,
    ),
}
"""Folders by the names of what is in them."""


@dataclass(frozen=True)
class RecognisedFiles:
    """Files of one format, or a folder of them."""

    kind: str
    paths: list[str]
    dataset: Dataset[Any]
    compression: str = ""
    storage: Storage = None


def named(path: str) -> str:
    """Return a pattern that only this path or URL matches."""
    return glob.escape(path) if is_local(path) else path


def recognise(source: str, storage: Storage = None) -> RecognisedFiles:
    """Return what is at a path, a pattern, a URL or a prefix; `PlanError` if its format is unknown."""
    if is_local(source) and os.path.isdir(folder := local_path(source)):
        if Path(folder, "_versions").is_dir():
            return RecognisedFiles("Lance", [folder], LanceDataset(folder))
        return RecognisedFiles("Zarr", [folder], rows_of_zarr(folder)) if is_zarr(folder) else recognise_folder(folder)
    is_file = is_local(source) and os.path.exists(local_path(source))  # though its name looks like a pattern
    if is_pattern(source) and not is_file:
        return recognise_files(matching("SOURCE", source, storage), storage)
    if is_local(source) or is_web(source):
        return recognise_files([source], storage)
    return recognise_url(source, storage)


def recognise_url(url: str, storage: Storage) -> RecognisedFiles:
    """Return what the object at a URL holds, or the folder that it names, without files that begin with a dot."""
    store, path = store_for(url, StorageOptions.of("asyncdata", storage))
    if path and not path.endswith("/") and (found := [*store.list(path)]):
        return recognise_files([entry.path for entry in found], storage)
    folder, inside = url.rstrip("/"), path.rstrip("/") + "/" if path else ""
    if next(iter(store.list(f"{inside}_versions/*")), None) is not None:
        return RecognisedFiles("Lance", [folder], LanceDataset(folder, storage_options=storage))
    if any([*store.list(f"{inside}{name}")] for name in ZARR):
        return RecognisedFiles("Zarr", [folder], rows_of_zarr(folder, storage))
    special = [name for name in INSIDE if [*store.list(f"{inside}{name}")]]
    below = [] if special else matching("SOURCE", f"{folder}/*", storage)
    files = [path for path in below if not path.rpartition("/")[2].startswith(".")]
    known = folder_of_kind(folder, [*special, *(path.rpartition("/")[2] for path in files)], storage)
    return recognise_files(files, storage) if known is None else known


def folder_of_kind(folder: str, names: Sequence[str], storage: Storage = None) -> RecognisedFiles | None:
    """Return what a folder with these names in it holds, `None` if it only has files."""
    how = {} if storage is None else {"storage_options": storage}
    for kind, (is_one, reader) in FOLDERS.items():
        if is_one(names):
            return RecognisedFiles(kind, [folder], reader(folder, **how))
    return None


def recognise_files(paths: list[str], storage: Storage = None) -> RecognisedFiles:
    kind, compression = kind_of(paths, storage)
    how = {} if storage is None or all(map(is_local, paths)) else {"storage_options": storage}
    return RecognisedFiles(kind, paths, READERS[kind](paths, **how), compression, storage if how else None)


def recognise_folder(folder: str) -> RecognisedFiles:
    if Path(folder, "channel.json").exists():
        raise PlanError(f"{folder} is a channel: use asyncdata channel inspect")
    inside = sorted(path for path in Path(folder).iterdir() if not path.name.startswith("."))
    special = [name for name in INSIDE if Path(folder, name).exists()]
    if (known := folder_of_kind(folder, [*special, *(path.name for path in inside)])) is not None:
        return known
    files = [str(path) for path in inside if path.is_file()]
    if not files and inside:
        pictures = ImageFolderDataset(folder)
        return RecognisedFiles(f"folder of pictures in {len(pictures.class_names)} classes", [folder], pictures)
    if not files:
        raise PlanError(f"{folder} is empty")
    return recognise_files(files)


def kind_of(paths: Sequence[str], storage: Storage = None) -> tuple[str, str]:
    """Return the format and the compression of files; `PlanError` if they differ, or are unknown."""
    options = StorageOptions.of("asyncdata", storage)
    kinds = {path: kind_of_file(path, options) for path in paths}
    if len(set(kinds.values())) > 1:
        examples = {kind: path for path, kind in kinds.items()}
        raise PlanError(
            f"these files are of several formats: {'; '.join(f'{examples[kind]} is {kind[0]}' for kind in examples)}"
        )
    return next(iter(kinds.values()))


def kind_of_file(path: str, options: StorageOptions | None) -> tuple[str, str]:
    """Return the format and the compression of a file."""
    head = blocking(lambda: read_head(path, HEAD, options))
    if path.endswith(".bin") and has_token_index(path, options):
        return "Megatron's tokens", ""
    compression = "" if is_record(head) else recognised(head[:HEAD_BYTES]) or ""
    if compression:
        head = expanded(head, compression, path)
    kind = by_bytes(head, bool(compression) or len(head) == HEAD)
    if kind is None and (other := not_supported(head)):
        raise PlanError(f"{path}: it is compressed ({other}), which is not supported")
    kind = kind or by_name(path, head)
    if kind is None:
        raise PlanError(f"{without_query(path)}: it begins with {head[:16]!r}, like no known format")
    return kind, compression


def has_token_index(path: str, options: StorageOptions | None) -> bool:
    """Return whether the index of Megatron's tokens is beside a file."""
    try:
        return blocking(lambda: read_head(index_path(path), len(TOKENS), options)) == TOKENS
    except OSError:
        return False


def expanded(head: bytes, compression: str, path: str) -> bytes:
    """Return the first decompressed bytes of a stream."""
    try:
        return bytes(decompressor(compression, path).feed(head))[:HEAD]
    except DataLossError:
        return b""


def is_record(head: bytes) -> bool:
    """Return whether a file begins as a TFRecord file."""
    return len(head) >= HEADER and length_intact(head[:HEADER], 0)


def is_archive(head: bytes) -> bool:
    """Return whether a file begins as a tar archive."""
    try:
        return len(head) >= BLOCK and member_of(head[:BLOCK]) is not None
    except ValueError:
        return False


def by_bytes(head: bytes, cut: bool) -> str | None:
    """Return the format that begins with these bytes."""
    for begin, kind in (
        (b"PAR1", "Parquet"),
        (b"ARROW1", "Arrow"),
        (b"\xff\xff\xff\xff", "Arrow"),
        (NPY, "NumPy"),
        (TOKENS, "Megatron's tokens"),
        (RIEGELI, "ArrayRecord"),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (head[:4] + bytes(4) + b'{"', "safetensors"),
    ):
        if head.startswith(begin):
            return kind
    if head.startswith(b"PK\x03\x04") and b".npy" in head[:256]:
        return "NumPy"
    if is_record(head):
        return "TFRecord"
    if is_archive(head):
        return "WebDataset"
    return "JSON Lines" if is_json_line(head, cut) else None


def is_json_line(head: bytes, cut: bool) -> bool:
    """Return whether the first line is a JSON object or list."""
    line, newline, _ = head.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")
    if not line.startswith((b"{", b"[")):
        return False
    if not newline and cut:
        return True
    try:
        json_value(line)
    except NO_JSON:
        return False
    return True


def by_name(path: str, head: bytes) -> str | None:
    """Return the format of text by the file name, or just that it is text."""
    name = without_query(path).lower().removesuffix(".gz").removesuffix(".zst").removesuffix(".bz2")
    for ending, kind in (
        (".jsonl", "JSON Lines"),
        (".ndjson", "JSON Lines"),
        (".csv", "CSV"),
        (".tfrecord", "TFRecord"),
        (".mds", "MDS"),
    ):
        if name.endswith(ending):
            return kind
    try:
        io.TextIOWrapper(io.BytesIO(head[: max(0, len(head) - 3)]), "utf-8").read()
    except UnicodeDecodeError:
        return None
    return "text" if head and b"\0" not in head else None


def as_examples(first: Any) -> bool:
    """Return whether records are serialized tf.Examples."""
    try:
        return bool(decode_example(first))
    except (DataLossError, ValueError, TypeError):
        return False
