"""CsvDataset: the rows of CSV files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

from asyncdata.dataset import Dataset
from asyncdata.elements.validation import check_flag
from asyncdata.errors import PlanError
from asyncdata.formats.csv import Column, Dialect, Table
from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.graph.node import check_count
from asyncdata.readers.files import CacheFolder, FileArguments, Filenames, StorageMapping
from asyncdata.sources.csv import CsvFile

__all__ = ("DTYPES", "CsvDataset", "dialect_of", "table_of")

DTYPES = ("int32", "int64", "float32", "float64", "object")
"""The dtypes of fields; `object` is a string, as bytes."""


class CsvDataset(Dataset[tuple[Any, ...]]):
    """The records of CSV files as tuples, strictly by RFC 4180; strings are `bytes`.

    A record with a wrong number of fields, a missing field, a field of a wrong type or a misplaced quote is a
    `DataLossError` in its place, and the next record follows.

    >>> import asyncdata as ad, numpy as np, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "table.csv"
    ...     _ = path.write_text('1,"one, or so"\\n2,\\n')
    ...     list(ad.experimental.CsvDataset(path, [np.int32, "nothing"]))
    [(np.int32(1), b'one, or so'), (np.int32(2), b'nothing')]
    """

    def __init__(
        self,
        filenames: Filenames,
        record_defaults: Sequence[Any],
        compression_type: str | None = None,
        buffer_size: int | None = None,
        header: bool = False,
        field_delim: str = ",",
        use_quote_delim: bool = True,
        na_value: str = "",
        select_cols: Sequence[int] | None = None,
        exclude_cols: Sequence[int] | None = None,
        *,
        max_record_bytes: int = MAX_RECORD_BYTES,
        storage_options: StorageMapping = None,
        cache_dir: CacheFolder = None,
    ) -> None:
        """Read `filenames`: a path, several, or a dataset of paths.

        `record_defaults` has one entry for each column that is read: a dtype (`np.int32`, `np.int64`, `np.float32`,
        `np.float64`; `int`, `float`, `str`) for a required field, or a value that replaces an empty field or
        `na_value`. With `header` the first record of each file is skipped. Give either `select_cols`, the columns to
        read in ascending order, or `exclude_cols`. Compression is detected from the first bytes of a file, unless
        `compression_type` is given, as for `TextLineDataset`. A record of more than `max_record_bytes` (256 MiB) is a
        `DataLossError` in its place, and the rest of its file is not read. `storage_options` are for files at URLs, as
        for `list_files`; `cache_dir` is a folder or a `CacheDir` that caches them on this machine.
        """
        method = "CsvDataset"
        given = FileArguments.of(method, filenames, compression_type, buffer_size, None, storage_options, cache_dir)
        table = table_of(record_defaults, na_value, select_cols, exclude_cols)
        dialect = dialect_of(method, field_delim, use_quote_delim, header)
        most = check_count(method, "max_record_bytes", max_record_bytes, 1)
        super().__init__(given.plan(CsvFile, dialect=dialect, table=table, max_record_bytes=most))


def dialect_of(method: str, delimiter: Any, quotes: bool, header: bool) -> Dialect:
    """Return the dialect of the files."""
    if not isinstance(delimiter, str) or len(delimiter.encode()) != 1 or delimiter in '"\r\n':
        raise PlanError(f"field_delim must be one ASCII character, not a quote or a line end, got {delimiter!r}")
    quoted, headed = check_flag(method, "use_quote_delim", quotes), check_flag(method, "header", header)
    return Dialect(delimiter.encode(), quoted, headed)


def table_of(
    defaults: Sequence[Any], na_value: str, select: Iterable[int] | None, exclude: Iterable[int] | None
) -> Table:
    """Return the fields to read with their types, and how many fields a record may have."""
    if isinstance(defaults, str) or not len(defaults):
        raise PlanError(f"record_defaults must have a dtype or a value for each column, got {defaults!r}")
    if select is not None and exclude is not None:
        raise PlanError("give either select_cols or exclude_cols, not both")
    count, missing = len(defaults), frozenset({b"", na_value.encode()})
    if select is not None:
        chosen = ascending("select_cols", select)
        if len(chosen) != count:
            raise PlanError(f"select_cols has {len(chosen)} columns, and record_defaults {count}; one is for each")
        expected, last = f"at least {chosen[-1] + 1}", chosen[-1]
        return Table(columns_of(chosen, defaults), missing, lambda size: size > last, expected)
    left_out = frozenset(ascending("exclude_cols", exclude or ()))
    chosen = [place for place in range(count + len(left_out)) if place not in left_out][:count]
    last = chosen[-1]
    expected = f"{count}" + (f" and those in exclude_cols {sorted(left_out)}" if left_out else "")
    sizes = frozenset(
        size for size in range(last + 1, last + len(left_out) + 2) if left_out >= {*range(last + 1, size)}
    )
    return Table(columns_of(chosen, defaults), missing, sizes.__contains__, expected)


def ascending(name: str, places: Iterable[int]) -> list[int]:
    """Return numbers of columns; raise unless they are in ascending order."""
    chosen = list(places)
    if any(place < 0 for place in chosen) or sorted(set(chosen)) != chosen:
        raise PlanError(f"{name} must be numbers of columns from 0 on, each once and in ascending order, got {chosen}")
    return chosen


def columns_of(places: Sequence[int], defaults: Sequence[Any]) -> tuple[Column, ...]:
    return tuple([column(place, default) for place, default in zip(places, defaults, strict=True)])


def column(index: int, default: Any) -> Column:
    """Return a column: required for a dtype or an empty array, optional for a value."""
    default = getattr(default, "as_numpy_dtype", default)  # for a TensorFlow dtype
    if isinstance(default, (type, np.dtype)):
        kind: np.dtype[Any] = np.dtype(cast("Any", default))
        return Column(index, dtype_of(kind, cast("object", default)))
    values = np.asarray(default)
    dtype = dtype_of(values.dtype, default)
    if values.size == 0:
        return Column(index, dtype)
    one = values.reshape(-1)[0]
    if values.size > 1 or (dtype.kind == "O" and not isinstance(one, (str, bytes))):
        raise PlanError(f"a default of record_defaults must be one number or string, got {default!r:.60}")
    if dtype.kind != "O":
        return Column(index, dtype, one)
    return Column(index, dtype, str(one).encode() if isinstance(one, str) else bytes(one))


def dtype_of(dtype: np.dtype[Any], given: object) -> np.dtype[Any]:
    """Return the dtype of a column, `object` for strings."""
    found = np.dtype(object) if dtype.kind in "US" else dtype
    if found.name not in DTYPES or (
        isinstance(given, type) and dtype.kind == "O" and given not in (object, np.object_)
    ):
        raise PlanError(f"a column must be int32, int64, float32, float64 or str, got {given!r:.60} in record_defaults")
    return found
