"""Datasets that tf.data has under `experimental`: tables in CSV files, and in databases."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

import numpy as np

from asyncdata.dataset import Dataset
from asyncdata.errors import PlanError
from asyncdata.formats.compression import decompressor
from asyncdata.formats.csv import Column, CsvLayout
from asyncdata.readers import Filenames, block_size, checked, files_of
from asyncdata.sources.csv import CsvFile
from asyncdata.structure import TensorSpec, open_level

__all__ = ("CsvDataset", "SqlDataset")

NUMBERS: Final = ("int32", "int64", "float32", "float64")


class CsvDataset(Dataset[tuple[Any, ...]]):
    r"""The records of CSV files (RFC 4180), as tuples of NumPy scalars and `bytes`.

    A record that is wrong is a `DataLossError` in its place that says which field. Where a quote is out of place the
    rest of that line is lost, and where one is never closed the rest of the file.

    >>> import asyncdata as ad, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "prices.csv"
    ...     _ = path.write_text('id,price,name\n1,2.5,"pears, ripe"\n2,,figs\n')
    ...     list(ad.experimental.CsvDataset(path, ["int64", [0.0], "string"], header=True))
    [(np.int64(1), np.float32(2.5), b'pears, ripe'), (np.int64(2), np.float32(0.0), b'figs')]
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
    ) -> None:
        """Read `filenames`: a path, several, or a dataset of paths, one after the other.

        `record_defaults` has one member for each column that is read: a dtype (int32, int64, float32, float64 or
        string) where there must be a value, or a list of one value, `[0]`, for a field that is empty or `na_value`.
        Columns are chosen by `select_cols`, their numbers in rising order, or by `exclude_cols`.
        """
        decompressor(compression_type)  # raises where the mistake is made
        places, total = chosen(len(record_defaults), select_cols, exclude_cols)
        columns = [column(place, default) for place, default in zip(places, record_defaults, strict=True)]
        delimiter = field_delim.encode()
        if len(delimiter) != 1 or delimiter in b'"\r\n':
            raise PlanError(f"CsvDataset(field_delim=) must be one character, no quote and no newline: {field_delim!r}")
        layout = CsvLayout(columns, total, delimiter, use_quote_delim, na_value.encode(), header)
        size = block_size("CsvDataset", buffer_size)
        open_one = partial(csv_file, compression=compression_type or None, block_bytes=size, layout=layout)
        super().__init__(files_of("CsvDataset", filenames, open_one, None))


def csv_file(filename: str | PathLike[str], compression: str | None, block_bytes: int, layout: CsvLayout) -> CsvFile:
    """Return the source for one file."""
    return CsvFile(checked(filename), compression, block_bytes, layout=layout)


def chosen(count: int, select: Sequence[int] | None, exclude: Sequence[int] | None) -> tuple[list[int], int]:
    """Return the places of the columns that are read, and how many there are, -1 for any number."""
    if not count:
        raise PlanError("CsvDataset(record_defaults=) needs a member for each column that is read, got none")
    if select is not None and exclude is not None:
        raise PlanError("CsvDataset takes select_cols or exclude_cols, not both")
    given = [*(select or exclude or ())]
    if any(left >= right for left, right in pairwise([-1, *given])):
        raise PlanError(f"CsvDataset: columns are told by numbers from 0 on in rising order, got {given}")
    if select is not None:
        if len(given) != count:
            raise PlanError(f"CsvDataset(select_cols=) has {len(given)} columns, record_defaults {count}")
        return given, -1
    total = count + len(given)
    return [place for place in range(total) if place not in given], total


def column(place: int, default: Any) -> Column:
    """Return a column for what `record_defaults` says of it."""
    if isinstance(default, (list, tuple, np.ndarray, np.generic)):
        values = np.ravel(np.asarray(default, object if isinstance(default, list) else None)).tolist()
        if len(values) == 1:
            return with_default(place, default, values[0])
    elif default in {"string", str, bytes, object}:
        return Column(place, None)
    else:
        dtype = np.dtype(default)
        if dtype.name in NUMBERS:
            return Column(place, dtype)
    raise PlanError(
        f"CsvDataset(record_defaults=): for each column a dtype ({', '.join(NUMBERS)} or string) or a list of one "
        f"value, got {default!r:.60}"
    )


def with_default(place: int, told: Any, value: Any) -> Column:
    """Return a column some fields of which may be missing; Python's numbers are of 32 bits, as for tf.data."""
    if isinstance(value, (str, bytes)):
        return Column(place, None, value.encode() if isinstance(value, str) else value, False)
    dtype = getattr(value, "dtype", None) or getattr(told, "dtype", None)
    if dtype is None or np.dtype(dtype).hasobject:
        dtype = np.dtype("int32" if isinstance(value, int) else "float32")
    if np.dtype(dtype).name not in NUMBERS or not isinstance(value, (int, float)):
        raise PlanError(f"CsvDataset(record_defaults=): a default is a number or a string, got {value!r:.60}")
    return Column(place, np.dtype(dtype), value, False)


class SqlDataset(Dataset[tuple[Any, ...]]):
    """The rows of a query, as tuples, read in a thread.

    From a state the query is run again up to the place: give it an `ORDER BY`.

    >>> import asyncdata as ad, os, sqlite3, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "shop.db")
    >>> connection = sqlite3.connect(path)
    >>> _ = connection.execute("CREATE TABLE fruit (name TEXT, price REAL)")
    >>> _ = connection.executemany("INSERT INTO fruit VALUES (?, ?)", [("fig", 2.5), ("pear", 1.0)])
    >>> connection.commit()
    >>> connection.close()
    >>> query = "SELECT name, price FROM fruit ORDER BY price"
    >>> list(ad.experimental.SqlDataset("sqlite", path, query, ("string", "float64")))
    [('pear', np.float64(1.0)), ('fig', np.float64(2.5))]
    """

    def __init__(
        self,
        driver_name: str | Callable[[str], Any],
        data_source_name: str | PathLike[str],
        query: str,
        output_types: Any,
    ) -> None:
        """Run `query`, and convert each row to `output_types`: a dtype for each column, `"string"` for what is left.

        `driver_name` is `"sqlite"`, whose file is opened for reading only, or a function that gets `data_source_name`
        and returns a connection with the methods of Python's database API (PEP 249); it is called for each epoch.
        """
        if driver_name != "sqlite" and not callable(driver_name):
            raise PlanError(
                f'SqlDataset(driver_name=) is "sqlite" or a function that returns a connection, got {driver_name!r}'
            )
        level = open_level(output_types)
        kinds = [output_types] if level is None else level.parts
        spec = tuple([TensorSpec((), object if kind in {"string", str, bytes, object} else kind) for kind in kinds])
        connect = driver_name if callable(driver_name) else read_only
        rows = partial(rows_of, connect, fspath(data_source_name), query)
        super().__init__(Dataset.from_generator(rows, output_signature=spec).plan)


def read_only(path: str) -> sqlite3.Connection:
    """Open a SQLite file, which must be there, for reading."""
    return sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)


def rows_of(connect: Callable[[str], Any], name: str, query: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query."""
    with closing(connect(name)) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(query)
        while rows := cursor.fetchmany(1024):
            yield from map(tuple, rows)
