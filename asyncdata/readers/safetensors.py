"""SafetensorsDataset: the rows of the tensors in safetensors files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncdata.dataset import Dataset
from asyncdata.readers.files import CacheFolder, FileArguments, Filenames, StorageMapping, names_given
from asyncdata.sources.safetensors import SafetensorsFile, SafetensorsFiles

__all__ = ("SafetensorsDataset",)


class SafetensorsDataset(Dataset[dict[str, Any]]):
    """The rows of the tensors in safetensors files: dicts of rows by tensor name, along the first axis.

    Nothing is loaded: any row is read by its number, so `len`, `dataset[i]`, `shuffle()` without a buffer and `shard`
    take no memory, if the names are known (a path, a list, `list_files(shuffle=False)`), files are local or cached, and
    there is no `num_parallel_reads`. Rows may be changed. bfloat16 and the float8 dtypes need the package `ml_dtypes`.
    A file that is damaged, or cut short anywhere, is one `DataLossError`, and the next file follows. Tensors have no
    checksums.

    >>> import asyncdata as ad, json, numpy as np, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "numbers.safetensors")  # as safetensors.numpy.save_file writes it
    ...     header = json.dumps({"x": {"dtype": "I16", "shape": [3, 2], "data_offsets": [0, 12]}}).encode()
    ...     _ = path.write_bytes(len(header).to_bytes(8, "little") + header + np.arange(6, dtype=np.int16).tobytes())
    ...     ds = ad.SafetensorsDataset(path)
    ...     len(ds), ds[2], next(iter(ds.batch(2)))
    (3, {'x': array([4, 5], dtype=int16)}, {'x': array([[0, 1],
           [2, 3]], dtype=int16)})
    """

    def __init__(
        self,
        filenames: Filenames,
        tensors: Sequence[str] | None = None,
        *,
        num_parallel_reads: int | None = None,
        storage_options: StorageMapping = None,
        cache_dir: CacheFolder = None,
    ) -> None:
        """Read `filenames`: a path, several, or a dataset of paths.

        Only the bytes of `tensors`, a list of names, are read; without it those of all. They must have equally many
        rows. Remote files are read in order, in parts; with `cache_dir` also by number. Files are read one after
        another, or `num_parallel_reads` at once, in turn. `storage_options` and `cache_dir` are as for
        `TFRecordDataset`.
        """
        method = "SafetensorsDataset"
        given = FileArguments.of(method, filenames, "", None, num_parallel_reads, storage_options, cache_dir)
        chosen = names_given(method, "tensors", tensors, least=1)
        names = None if chosen is None else tuple(chosen)
        super().__init__(given.plan(SafetensorsFile, SafetensorsFiles(names, given.storage), names=names))
