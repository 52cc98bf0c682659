"""ArrowDataset: the rows of Arrow IPC files and streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncdata.dataset import Dataset
from asyncdata.formats.arrow_columns import arrow
from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.graph.node import check_count
from asyncdata.readers.files import CacheFolder, FileArguments, Filenames, StorageMapping, names_given
from asyncdata.sources.arrow import ArrowFile

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
        given = FileArguments.of(
            method, filenames, compression_type, buffer_size, num_parallel_reads, storage_options, cache_dir
        )
        names, most = (
            names_given(method, "columns", columns),
            check_count(method, "max_record_bytes", max_record_bytes, 1),
        )
        super().__init__(given.plan(ArrowFile, columns=names, max_record_bytes=most))
