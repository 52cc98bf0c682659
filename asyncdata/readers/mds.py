"""MdsDataset: the samples in the folders that Mosaic's package streaming writes (MDS)."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from itertools import chain
from typing import Any, Final, cast

from asyncdata.dataset import Dataset
from asyncdata.elements.validation import check_flag
from asyncdata.errors import PlanError
from asyncdata.formats.mds import MdsFormat
from asyncdata.readers.files import (
    CacheFolder,
    FileArguments,
    Filename,
    Filenames,
    StorageMapping,
    block_size,
    check_index,
    checked,
    source_of,
)
from asyncdata.readers.folder_index import inside, joined, reading_index
from asyncdata.sources.shards import MdsFile, MdsFiles
from asyncdata.storage import StorageOptions, is_local, local_path, without_query

__all__ = ("MdsDataset",)

METHOD: Final = "MdsDataset"

SHARD: Final = re.compile(r"\.mds(?:\.(\w+))?$")
"""How the names of shards end: the last part says how they are compressed."""

COMPRESSIONS: Final = {"": "", "zstd": "ZSTD", "gz": "GZIP", "bz2": "BZ2"}
"""Our names of the compressions by the endings of shards."""


class MdsDataset(Dataset[dict[str, Any]]):
    """The samples in the folders that Mosaic's package `streaming` writes (MDS), as dicts of values by column.

    That package is not needed. Columns are decoded as it does, except that images stay encoded: `jpeg` and `png` are
    the bytes of a file, and `pil` those of MDS, for a function in `map`. Arrays may be changed. Pickled columns are
    refused unless `allow_pickle=True`, as they can run any code.

    A damaged sample is one `DataLossError` in its place; a shard that is cut short is one after its complete samples,
    and the next shard follows.

    >>> import asyncdata as ad, json, struct, tempfile, pathlib
    >>> columns = json.dumps({"column_names": ["n"], "column_encodings": ["int"], "column_sizes": [8]}).encode()
    >>> ends = [16 + len(columns) + 8 * number for number in range(3)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "shard.00000.mds"
    ...     _ = path.write_bytes(struct.pack("<4I", 2, *ends) + columns + struct.pack("<2q", 5, 7))
    ...     shards = [{"format": "mds", "version": 2, "raw_data": {"basename": path.name}, "zip_data": None}]
    ...     _ = pathlib.Path(folder, "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    ...     ds = ad.MdsDataset(folder, index=True)
    ...     list(ds), ds[1]
    ([{'n': 5}, {'n': 7}], {'n': 7})
    """

    def __init__(
        self,
        filenames: Filenames,
        split: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        *,
        index: bool = False,
        allow_pickle: bool = False,
        storage_options: StorageMapping = None,
        cache_dir: CacheFolder = None,
    ) -> None:
        """Read `filenames`: a folder with an `index.json`, several, shards (`.mds`), or a dataset of paths of shards.

        `split` is the subfolder of each folder that is read. Shards compressed by zstd, gzip and bzip2 are
        decompressed; where a shard of a local folder lies there decompressed too, that one is read. Files are read in
        blocks of `buffer_size` bytes (2 MB), one after another, or `num_parallel_reads` at once, in turn.
        `storage_options` and `cache_dir` are as for `TFRecordDataset`.

        With `index=True` any sample can be read by its number, and the number of samples is known: `dataset[i]`,
        `shuffle()` without a buffer and the like read only the samples that they need, for shards without compression,
        if there is no `num_parallel_reads`. The headers of shards say where samples begin; nothing else is stored.
        """
        storage = StorageOptions.of(METHOD, storage_options, cache_dir)
        allowed = check_flag(METHOD, "allow_pickle", allow_pickle)
        counts: dict[str, int] = {}
        names = shards_of(filenames, split, storage, counts)
        form = MdsFormat(allowed, counts)
        files = MdsFiles(form, storage) if check_index(METHOD, index, None) else None
        for name in cast("list[str]", names) if isinstance(names, list) else ():
            compression_of(name, index)
        given = FileArguments(METHOD, names, num_parallel_reads, storage, block_bytes=block_size(METHOD, buffer_size))
        super().__init__(given.plan(mds_file, files, form=form))


def mds_file(filename: Filename, **how: Any) -> MdsFile:
    """Return the source for one shard."""
    shard = source_of(MdsFile, filename, **how)
    return replace(shard, compression=compression_of(shard.path, shard.files is not None))


def compression_of(path: str, index: bool) -> str:
    """Return how a shard is compressed by its name; `PlanError` if that is not supported."""
    shown = without_query(path)
    ending = SHARD.search(shown)
    kind = (ending and ending[1]) or ""
    if kind not in COMPRESSIONS:
        raise PlanError(
            f"{METHOD}: {shown} is compressed by {kind}, which is not supported; shards compressed by zstd, gz or bz2 "
            "are, and those without compression"
        )
    if kind and index:
        raise PlanError(
            f"{METHOD}(index=True): {shown} is compressed, and can only be read from its beginning: leave index out, "
            "or decompress the shards of a local folder and leave them beside the compressed ones"
        )
    return COMPRESSIONS[kind]


def shards_of(filenames: Any, split: str | None, storage: StorageOptions | None, counts: dict[str, int]) -> Any:
    """Return the paths of shards: those of folders are in their `index.json`, with the numbers of their samples, which
    are added to `counts`."""
    if isinstance(filenames, Dataset):
        return cast("Any", filenames)
    if isinstance(filenames, (str, bytes, os.PathLike)):
        name = checked(METHOD, filenames, storage)
        return name if is_shard(name) else shards_in(name, split, storage, counts)
    if not hasattr(filenames, "__iter__"):
        return filenames  # which is an error
    names = [checked(METHOD, name, storage) for name in cast("list[Any]", filenames)]
    found = [[name] if is_shard(name) else shards_in(name, split, storage, counts) for name in names]
    return [*chain.from_iterable(found)]


def is_shard(path: str) -> bool:
    """Return whether a path or URL is one of a shard, not of a folder."""
    return SHARD.search(without_query(path)) is not None and not (is_local(path) and os.path.isdir(local_path(path)))


def shards_in(folder: str, split: str | None, storage: StorageOptions | None, counts: dict[str, int]) -> list[str]:
    """Return the paths of the shards of a folder, in order; `DataLossError` if its index is damaged."""
    root = joined(folder, split or "")
    with reading_index(root, "MDS", storage) as index:
        found = [(shard_in(root, entry), entry.get("samples")) for entry in index["shards"]]
        counts.update((path, count) for path, count in found if type(count) is int)
        return [path for path, _ in found]


def shard_in(root: str, entry: Any) -> str:
    """Return the path of a shard: the decompressed one if it is there."""
    if (entry["format"], entry["version"]) != ("mds", 2):
        raise ValueError(f"its shards are {entry['format']!r}, version {entry['version']!r}; expected 'mds', version 2")
    raw, packed = (entry[kind] and joined(root, inside(entry[kind]["basename"])) for kind in ("raw_data", "zip_data"))
    if not packed or (raw and is_local(raw) and os.path.exists(local_path(raw))):
        return raw
    return packed
