"""ParquetDataset: the rows of Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncdata.dataset import Dataset
from asyncdata.errors import PlanError
from asyncdata.formats.arrow_columns import arrow
from asyncdata.formats.parquet_filters import filter_expression
from asyncdata.readers.files import CacheFolder, FileArguments, Filenames, StorageMapping, check_index, names_given
from asyncdata.sources.parquet import ParquetFile
from asyncdata.sources.parquet_random_access import ParquetFiles

__all__ = ("ParquetDataset",)


class ParquetDataset(Dataset[dict[str, Any]]):
    """The rows of Parquet files, each a dict of values by column; batches are made from complete columns.

    Numbers and times are NumPy's, strings `str`, lists arrays, structs dicts, and missing values `None`; the type of a
    column decides it (docs/formats.md has the table), and a batch is what stacking its rows gives. Files are read one
    row group at a time. A row group that cannot be read is a `DataLossError` in its place, and the next one follows; a
    file that is not a Parquet file is one error, and the next file follows. Needs pyarrow: `pip install
    'asyncdata[parquet]'`.

    >>> import asyncdata as ad, tempfile, pathlib
    >>> import pyarrow, pyarrow.parquet  # doctest: +SKIP
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     path = pathlib.Path(folder) / "a.parquet"
    ...     pyarrow.parquet.write_table(pyarrow.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}), path)
    ...     next(iter(ad.ParquetDataset(path, columns=["id"]).batch(2)))
    {'id': array([1, 2])}
    """

    def __init__(
        self,
        filenames: Filenames,
        columns: Sequence[str] | None = None,
        filters: Any = None,
        num_parallel_reads: int | None = None,
        *,
        index: bool = False,
        storage_options: StorageMapping = None,
        cache_dir: CacheFolder = None,
    ) -> None:
        """Read `filenames`: a path, several, or a dataset of paths.

        Only the bytes of `columns` are read, by default of all. Rows that do not match `filters` are dropped; these are
        a list as for `pyarrow.parquet.read_table`, such as `[("year", ">", 2020)]`, or an expression of
        `pyarrow.compute`. With a list, row groups whose statistics exclude a match are not read. Files are read one
        after another, or `num_parallel_reads` at once, in turn. `storage_options` are for files at URLs, as for
        `list_files`; `cache_dir` is a folder or a `CacheDir` that caches them on this machine.

        With `index=True`, and without `filters`, any row can be read by its number, and the number of them is known, as
        for `TFRecordDataset`. The row group of each row is read; eight row groups stay in memory. So write files whose
        rows are to be shuffled without a buffer in small row groups. If a row group cannot be read, each of its rows is
        an error.
        """
        method = "ParquetDataset"
        arrow("pyarrow.parquet", method)  # raises here if it is not installed
        given = FileArguments.of(method, filenames, None, None, num_parallel_reads, storage_options, cache_dir)
        chosen = names_given(method, "columns", columns)
        if check_index(method, index, None) and filters is not None:
            raise PlanError(
                f"{method}(index=True) cannot be combined with filters=, which leave an unknown number of rows"
            )
        if filters is not None:
            filter_expression(filters)  # raises here if they are none
        files, condition = (
            ParquetFiles(chosen, given.storage) if index else None,
            None if filters is None else str(filters),
        )
        super().__init__(given.plan(ParquetFile, files, columns=chosen, filters=filters, condition=condition))
