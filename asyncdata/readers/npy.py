"""NpyDataset: the rows of arrays in NumPy files."""

from __future__ import annotations

from functools import partial
from typing import Any

from asyncdata.dataset import Dataset
from asyncdata.formats.npy_rows import MAX_FILE_BYTES
from asyncdata.graph.node import check_count
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
from asyncdata.sources.npy import NpyFile, NpyFiles
from asyncdata.storage import StorageOptions

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
        storage = storage_for(method, filenames, storage_options, cache_dir)
        most = check_count(method, "max_file_bytes", max_file_bytes, 1)
        files = NpyFiles(most, storage) if check_index(method, index, compression_type) else None
        open_one = partial(
            npy_file,
            compression=compression_type,
            block_bytes=block_size(method, buffer_size),
            files=files,
            max_file_bytes=most,
            storage=storage,
        )
        super().__init__(files_of(method, filenames, open_one, num_parallel_reads, files, storage))


def npy_file(
    filename: Filename,
    compression: str | None,
    block_bytes: int,
    files: NpyFiles | None,
    max_file_bytes: int,
    storage: StorageOptions | None,
) -> NpyFile:
    """Return the source for one file."""
    path = path_of("NpyDataset", filename, storage, indexed=files is not None)
    return NpyFile(path, compression, block_bytes, files=files, max_file_bytes=max_file_bytes, storage=storage)
