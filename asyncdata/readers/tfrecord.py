"""TFRecordDataset: the records of TFRecord files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from asyncdata.dataset import Dataset
from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.graph.node import Node, check_count
from asyncdata.readers.files import (
    CacheFolder,
    FileArguments,
    Filename,
    Filenames,
    StorageMapping,
    check_index,
    source_of,
)
from asyncdata.sources.tfrecord import RecordFile
from asyncdata.sources.tfrecord_random_access import IndexCache

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
        method = "TFRecordDataset"
        given = FileArguments.of(
            method, filenames, compression_type, buffer_size, num_parallel_reads, storage_options, cache_dir
        )
        most = check_count(method, "max_record_bytes", max_record_bytes, 1)
        super().__init__(records_of(given, index, most))


def records_of(
    given: FileArguments, index: bool, most: int = MAX_RECORD_BYTES, samples: Mapping[str, int] | None = None
) -> Node:
    """Return the plan that reads files; `samples` is how many records they have, if it is known."""
    index = check_index(given.method, index, given.compression)
    indexes = IndexCache(most, given.storage, samples) if index else None
    return given.plan(record_file, indexes, max_record_bytes=most, samples=samples or {})


def record_file(filename: Filename, samples: Mapping[str, int], **how: Any) -> RecordFile:
    """Return the source for one file."""
    file = source_of(RecordFile, filename, **how)
    return replace(file, samples=samples.get(file.path))
