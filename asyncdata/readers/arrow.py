"""ArrowDataset: the rows of Arrow IPC files and streams."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from asyncdata.dataset import Dataset
from asyncdata.errors import PlanError
from asyncdata.formats.arrow_columns import arrow
from asyncdata.formats.compression import decompressor
from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.graph.node import check_count
from asyncdata.readers.files import (
    CacheFolder,
    Filename,
    Filenames,
    StorageMapping,
    block_size,
    checked,
    files_of,
    storage_for,
)
from asyncdata.sources.arrow import ArrowFile
from asyncdata.storage import StorageOptions

__all__ = ("ArrowDataset",)


class ArrowDataset(Dataset[dict[str, Any]]):
    """The rows of Arrow IPC files and streams (`.arrow`, `.feather`), each a dict of values by column.

    Values and batches are as for `ParquetDataset`. Files are read one record batch at a time. A file that is damaged,
    cut short or not an Arrow file is one `DataLossError` after its complete batches, and the next file follows; so is a
    file that its writer did not close. Needs pyarrow: `pip install 'asyncdata[parquet]'`.

    >>> import asyncdata as ad, tempfile, pathlib
    >>> import pyarrow as pa  # doctest: +SKIP
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     table = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
    ...     with pa.ipc.new_file(f"{folder}/a.arrow", table.schema) as writer:
    ...         writer.write_table(table)
    ...     next(iter(ad.ArrowDataset(f"{folder}/a.arrow", columns=["id"]).batch(2)))
    {'id': array([1, 2])}
    """

    def __init__(
        self,
        filenames: Filenames,
        columns: Sequence[str] | None = None,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        *,
        max_record_bytes: int = MAX_RECORD_BYTES,
        storage_options: StorageMapping = None,
        cache_dir: CacheFolder = None,
    ) -> None:
        """Read `filenames`: a path, several, or a dataset of paths.

        Elements have these `columns`, by default all; the others are read too. A record batch of more than
        `max_record_bytes` (256 MiB) is a `DataLossError` in its place, and the rest of its file is not read. The other
        arguments are as for `TFRecordDataset`.
        """
        method = "ArrowDataset"
        arrow("pyarrow", method)  # raises here if it is not installed
        decompressor(compression_type)
        if isinstance(columns, str):
            raise PlanError(f"{method}(columns=) must be a list of names, got {columns!r:.80}")
        storage = storage_for(method, filenames, storage_options, cache_dir)
        open_one = partial(
            arrow_file,
            columns=None if columns is None else list(dict.fromkeys(columns)),
            compression=compression_type,
            block_bytes=block_size(method, buffer_size),
            most=check_count(method, "max_record_bytes", max_record_bytes, 1),
            storage=storage,
        )
        super().__init__(files_of(method, filenames, open_one, num_parallel_reads, None, storage))


def arrow_file(
    filename: Filename,
    columns: Sequence[str] | None,
    compression: str | None,
    block_bytes: int,
    most: int,
    storage: StorageOptions | None,
) -> ArrowFile:
    """Return the source for one file."""
    path = checked("ArrowDataset", filename, storage)
    return ArrowFile(path, compression, block_bytes, columns=columns, max_record_bytes=most, storage=storage)
