"""TFRecordDataset: the records of TFRecord files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from asyncdata.dataset import Dataset
from asyncdata.formats.compression import decompressor
from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.graph.node import Node, check_count
from asyncdata.readers.files import (
    CacheFolder,
    Filename,
    Filenames,
    StorageMapping,
    block_size,
    check_index,
    files_of,
    path_of,
    storage_for,
)
from asyncdata.sources.tfrecord import RecordFile
from asyncdata.sources.tfrecord_random_access import IndexCache
from asyncdata.storage import StorageOptions

__all__ = ("TFRecordDataset", "records_of")


class TFRecordDataset(Dataset[bytes]):
    """The records of TFRecord files, as `bytes`; both checksums of each record are verified.

    A corrupt record is a `DataLossError` in its place that names file and offset. A file that is missing, cut short or
    has a corrupt length is one error, and the next file follows.

    >>> import asyncdata as ad, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "greetings.tfrecord"
    ...     with ad.TFRecordWriter(path) as writer:
    ...         writer.write(b"hello")
    ...         writer.write(b"world")
    ...     list(ad.TFRecordDataset(path))
    ...     ad.TFRecordDataset(path, index=True)[1]
    [b'hello', b'world']
    b'world'
    """

    def __init__(
        self,
        filenames: Filenames,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        *,
        index: bool = False,
        max_record_bytes: int = MAX_RECORD_BYTES,
        storage_options: StorageMapping = None,
        cache_dir: CacheFolder = None,
    ) -> None:
        """Read `filenames`: a path, several, or a dataset of paths.

        gzip, bzip2 and zstd are detected from the first bytes of a file, unless `compression_type` is given:
        `"GZIP"`, `"ZLIB"`, `"BZ2"`, `"ZSTD"`, or `""` for none. Files are read in blocks of `buffer_size` bytes (2 MB),
        one after another, or `num_parallel_reads` at once, in turn. A record of more than `max_record_bytes`
        (256 MiB) is a `DataLossError` in its place, and the rest of its file is not read. `storage_options` are for
        files at URLs, as for `list_files`; `cache_dir` is a folder or a `CacheDir` that caches them on this
        machine, which `index=True` requires for them.

        With `index=True`, any record of uncompressed files can be read by its number. The elements are the same, and
        their number is known. `dataset[i]`, `shuffle()` without a buffer and the like read only the records that they
        need, if the names are known (a path, a list, `list_files(shuffle=False)`) and there is no `num_parallel_reads`;
        so does resuming from a state. The index of `a.tfrecord` is made when it is first needed and stored next to it
        as `.a.tfrecord.index`, or else in the user's cache; it is made again when the file has changed.
        """
        most = check_count("TFRecordDataset", "max_record_bytes", max_record_bytes, 1)
        storage = storage_for("TFRecordDataset", filenames, storage_options, cache_dir)
        super().__init__(records_of(filenames, compression_type, buffer_size, num_parallel_reads, index, most, storage))


def records_of(
    filenames: Any,
    compression: str | None,
    buffer_size: int | None,
    reads: int | None,
    index: bool,
    most: int,
    storage: StorageOptions | None,
    samples: Mapping[str, int] | None = None,
) -> Node:
    """Return the plan that reads files; `samples` is how many records they have, if it is known."""
    decompressor(compression)  # raises here for a wrong argument
    index = check_index("TFRecordDataset", index, compression)
    indexes = IndexCache(most, storage, samples) if index else None
    size = block_size("TFRecordDataset", buffer_size)
    open_one = partial(
        record_file,
        compression=compression,
        block_bytes=size,
        indexes=indexes,
        max_record_bytes=most,
        storage=storage,
        samples=samples or {},
    )
    return files_of("TFRecordDataset", filenames, open_one, reads, indexes, storage)


def record_file(
    filename: Filename,
    compression: str | None,
    block_bytes: int,
    indexes: IndexCache | None,
    max_record_bytes: int,
    storage: StorageOptions | None,
    samples: Mapping[str, int],
) -> RecordFile:
    """Return the source for one file."""
    path = path_of("TFRecordDataset", filename, storage, indexed=indexes is not None)
    how: Any = {"max_record_bytes": max_record_bytes, "storage": storage, "samples": samples.get(path)}
    return RecordFile(path, compression, block_bytes, indexes, **how)
