"""LanceDataset: the rows of a version of a Lance dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncdata.dataset import Dataset
from asyncdata.errors import PlanError
from asyncdata.readers.files import Filename, StorageMapping, names_given, one_path
from asyncdata.sources.lance import LanceMatches, LanceRows
from asyncdata.sources.lance_table import METHOD, LanceTable, lance
from asyncdata.storage import StorageOptions

__all__ = ("LanceDataset",)


class LanceDataset(Dataset[dict[str, Any]]):
    """The rows of a version of a Lance dataset, each a dict of values by column; batches are made from whole columns.

    Values and batches are as for `ParquetDataset`, and blobs are `bytes`. Rows that were deleted are left out. Any row
    is read by its number, so `len`, `dataset[i]`, `shuffle()` without a buffer and `shard` need no `index=True`.

    The version is the newest one when the dataset is made, and a run from a state needs one with the same rows: if the
    table has others since, that is a `ResumeError` which says what `version=` to give. A row that cannot be read is a
    `DataLossError` in its place. Lance has no checksums: damaged values may be other values. Needs `pip install
    'asyncdata[lance]'`.

    >>> import asyncdata as ad, tempfile
    >>> import lance, pyarrow  # doctest: +SKIP
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     _ = lance.write_dataset(pyarrow.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}), f"{folder}/a.lance")
    ...     ds = ad.LanceDataset(f"{folder}/a.lance", columns=["id"])
    ...     len(ds), ds[2], next(iter(ds.batch(2)))
    (3, {'id': np.int64(3)}, {'id': array([1, 2])})
    """

    def __init__(
        self,
        filename: Filename,
        columns: Sequence[str] | None = None,
        filters: str | None = None,
        *,
        version: int | str | None = None,
        storage_options: StorageMapping = None,
    ) -> None:
        """Read `filename`, a folder, or a URL of one with `s3://`, `gs://`, `az://` or `abfss://`.

        Only `columns` are read, by default all. `filters` is a condition in Lance's SQL, such as `"label > 3 AND split
        = 'train'"`; other rows are left out. With it rows are read in order only, fragment by fragment, and a run that
        resumes filters its fragment again. `version` is the number or the tag of an older version. `storage_options`
        are as for `list_files`; the package `lance` sends the requests, and tries again as it does.
        """
        lance()  # raises here if it is not installed
        storage = StorageOptions.of(METHOD, storage_options)
        uri = one_path(METHOD, filename, storage)
        names = names_given(METHOD, "columns", columns, least=1)
        if filters is not None and (not isinstance(filters, str) or not filters.strip()):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PlanError(
                f"{METHOD}(filters=) must be a condition in SQL, such as \"label > 3 AND split = 'train'\", got "
                f"{filters!r:.80}"
            )
        if isinstance(version, bool) or not isinstance(version, (int, str, type(None))):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PlanError(f"{METHOD}(version=) must be a number or a tag, got {version!r:.80}")
        table = LanceTable(uri, version, names, storage)
        table.check(filters)
        rows = LanceRows(uri, table, names) if filters is None else LanceMatches(uri, table, names, filters=filters)
        super().__init__(rows)
