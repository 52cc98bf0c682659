"""NpyDataset: the rows of arrays in NumPy files."""

from __future__ import annotations

from typing import Any

from asyncdata.dataset import Dataset
from asyncdata.formats.npy_rows import MAX_FILE_BYTES
from asyncdata.graph.node import check_count
from asyncdata.readers.files import CacheFolder, FileArguments, Filenames, StorageMapping, check_index
from asyncdata.sources.npy import NpyFile, NpyFiles

__all__ = ("NpyDataset",)


class NpyDataset(Dataset[Any]):
    """The rows of arrays in NumPy files: rows for `.npy`, dicts of rows by array name for `.npz`.

    Rows are along the first axis; the arrays in a `.npz` file must have the same number of rows. A `.npy` file is read
    row by row. A file in column-major (Fortran) order, and a `.npz` file, are read completely first. Arrays of objects
    are refused, as they are pickled. A file that is damaged, cut short or not a NumPy file is one `DataLossError` after
    its complete rows, and the next file follows.

    >>> import asyncdata as ad, numpy as np, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "squares.npy"
    ...     np.save(path, np.arange(4) ** 2)
    ...     ds = ad.NpyDataset(path, index=True)
    ...     next(iter(ds.batch(3))), len(ds), ds[3]
    (array([0, 1, 4]), 4, np.int64(9))
    """

    def __init__(
        self,
        filenames: Filenames,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        *,
        index: bool = False,
        max_file_bytes: int = MAX_FILE_BYTES,
        storage_options: StorageMapping = None,
        cache_dir: CacheFolder = None,
    ) -> None:
        """Read `filenames`: a path, several, or a dataset of paths.

        Files are read in blocks of `buffer_size` bytes (2 MB), one after another, or `num_parallel_reads` at once, in
        turn. A file that must be read completely is one error if it, or its arrays, exceed `max_file_bytes` (4
        GiB). `compression_type`, `storage_options` and `cache_dir` are as for `TFRecordDataset`.

        With `index=True` any row can be read by its number, and the number of rows is known: `dataset[i]`, `shuffle()`
        without a buffer and the like read only the rows that they need, if the names are known (a path, a list,
        `list_files(shuffle=False)`) and there is no `num_parallel_reads`. Files that must be read completely then stay
        in memory.
        """
        method = "NpyDataset"
        given = FileArguments.of(
            method, filenames, compression_type, buffer_size, num_parallel_reads, storage_options, cache_dir
        )
        most = check_count(method, "max_file_bytes", max_file_bytes, 1)
        files = NpyFiles(most, given.storage) if check_index(method, index, compression_type) else None
        super().__init__(given.plan(NpyFile, files, max_file_bytes=most))
