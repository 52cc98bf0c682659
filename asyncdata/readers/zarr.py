"""ZarrDataset: the rows or chunks of arrays of Zarr."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from asyncdata.dataset import Dataset
from asyncdata.errors import PlanError
from asyncdata.readers.files import Filename, StorageMapping, names_given, one_path
from asyncdata.sources.table_rows import TableRows
from asyncdata.sources.zarr_table import METHOD, ZarrTable, zarr
from asyncdata.storage import StorageOptions

__all__ = ("ZarrDataset",)


class ZarrDataset(Dataset[Any]):
    """The rows of an array of Zarr along its first axis; of a group dicts of the rows of its arrays, by their names.

    Chunks, or shards where there are any, are read as a whole, and several at once, which zarr requests together; so a
    row that is read alone costs its chunk. Any row is read by its number: `len`, `dataset[i]`, `shard` and `shuffle()`
    without a buffer. To shuffle large chunks instead of rows, read chunks:

    >>> import asyncdata as ad
    >>> import numpy as np, zarr  # doctest: +SKIP
    >>> group = zarr.open_group("/tmp/train.zarr", mode="w")  # doctest: +SKIP
    >>> _ = group.create_array("x", data=np.arange(8), chunks=(4,))  # doctest: +SKIP
    >>> chunks = ad.ZarrDataset("/tmp/train.zarr", element="chunk")  # doctest: +SKIP
    >>> next(iter(chunks))  # doctest: +SKIP
    {'x': array([0, 1, 2, 3])}
    >>> rows = chunks.shuffle(seed=0).unbatch().shuffle(4096, seed=0)  # doctest: +SKIP

    Values have the dtypes of the arrays, strings are objects, and rows may be changed. Each row of a chunk that cannot
    be read is a `DataLossError` in its place, or a `ConnectionError`, `PermissionError` or `TimeoutError` of a store. A
    chunk that is missing holds the fill value, as for zarr itself, and only a codec with checksums finds damaged
    values. Needs `pip install 'zarr>=3'`.
    """

    def __init__(
        self,
        filename: Filename,
        arrays: Sequence[str] | None = None,
        *,
        element: Literal["row", "chunk"] = "row",
        storage_options: StorageMapping = None,
    ) -> None:
        """Read `filename`, the folder or the URL of an array or a group.

        Of a group only `arrays` are read, a list of names such as `"train/image"`; without it those directly in the
        group. They must have equally many rows. With `element="chunk"` an element is the rows of a chunk: an array, or
        a dict of arrays; of several arrays, the rows of the largest chunk. URLs and `storage_options` are as for
        `list_files`.
        """
        zarr()  # raises here if it is not installed
        storage = StorageOptions.of(METHOD, storage_options)
        uri = one_path(METHOD, filename, storage, "; an array that is open is for Dataset.from_source")
        names = names_given(METHOD, "arrays", arrays, least=1)
        if element not in ("row", "chunk"):
            raise PlanError(f"{METHOD}(element=) must be 'row' or 'chunk', got {element!r:.80}")
        super().__init__(TableRows(uri, ZarrTable(uri, names, element, storage), names))
