"""Readers of tables: CsvDataset, make_csv_dataset, SqlDataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from typing import Any, cast

import numpy as np

from asyncdata.dataset import Dataset
from asyncdata.elements.spec import TensorSpec
from asyncdata.elements.validation import check_dtype, check_flag
from asyncdata.errors import PlanError
from asyncdata.executors.function_call import Call
from asyncdata.formats.compression import decompressor
from asyncdata.formats.csv import Column, Dialect, Strings, Table
from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.graph.node import check_count
from asyncdata.options import AUTOTUNE
from asyncdata.readers import Filename, Filenames, StorageMapping, block_size, checked, files_of
from asyncdata.sources.csv import CsvFile
from asyncdata.sources.in_memory import Items
from asyncdata.sources.listing import matching
from asyncdata.sources.sql import Connect, QueryRows, read_only_sqlite
from asyncdata.storage import BLOCK_BYTES, StorageOptions
from asyncdata.transforms.map import Map

__all__ = ("CsvDataset", "SqlDataset", "make_csv_dataset")

DTYPES = ("int32", "int64", "float32", "float64", "object")
"""What a field can be; `object` is a string, as bytes."""


class CsvDataset(Dataset[tuple[Any, ...]]):
    """The records of CSV files as tuples, strictly as RFC 4180 has them; strings are `bytes`.

    A record with another number of fields, a field that has not its type or is missing, or with a quote in a wrong
    place is a `DataLossError` in its place, and the next record follows.

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
    ) -> None:
        """Read `filenames`: a path, several, or a dataset of paths.

        `record_defaults` has one for each column that is read: a dtype (`np.int32`, `np.int64`, `np.float32`,
        `np.float64`; `int`, `float`, `str`) for a field that must be there, or a value that stands for it where it is
        empty or `na_value`. With `header` the first record of each file is left out. Either `select_cols`, in
        ascending order, or `exclude_cols` says which columns are read or not. A record of more than `max_record_bytes`
        (256 MiB) is a `DataLossError` in its place, and the rest of its file is not read. `storage_options` are for
        files at URLs, as `list_files` has them.
        """
        decompressor(compression_type)  # raises where the mistake is made
        storage = StorageOptions.of("CsvDataset", storage_options)
        table = table_of(record_defaults, na_value, select_cols, exclude_cols)
        open_one = partial(
            csv_file,
            compression=compression_type or None,
            block_bytes=block_size("CsvDataset", buffer_size),
            dialect=dialect_of("CsvDataset", field_delim, use_quote_delim, header),
            table=table,
            max_record_bytes=check_count("CsvDataset", "max_record_bytes", max_record_bytes, 1),
            storage=storage,
        )
        super().__init__(files_of("CsvDataset", filenames, open_one, None, None, storage))


class SqlDataset(Dataset[tuple[Any, ...]]):
    """The rows of a query as tuples, in the order of the query; strings are `bytes`, NULL is 0, False or empty.

    A value that has not its type is a `StructureError` in its row's place. A query that cannot be run is one error.
    From a state the query is run again, and the rows that were read are dropped: it needs an ORDER BY that leaves no
    order open, and a table that stays as it is.

    >>> import asyncdata as ad, contextlib, numpy as np, pathlib, sqlite3, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = str(pathlib.Path(folder) / "people.db")
    ...     with contextlib.closing(sqlite3.connect(path)) as db:
    ...         _ = db.execute("CREATE TABLE people (name TEXT, age INTEGER)")
    ...         _ = db.execute("INSERT INTO people VALUES ('Ann', 41), ('Bo', NULL)")
    ...         db.commit()
    ...     list(ad.experimental.SqlDataset("sqlite", path, "SELECT * FROM people ORDER BY name", (str, np.int32)))
    [(b'Ann', np.int32(41)), (b'Bo', np.int32(0))]
    """

    def __init__(
        self,
        driver_name: str | Connect,
        data_source_name: str | PathLike[str],
        query: str,
        output_types: Sequence[Any],
    ) -> None:
        """Run `query` and give its columns the dtypes `output_types`: integers, floats, `bool` or `str`.

        `driver_name` is `"sqlite"`, and `data_source_name` the path of a database, which is opened for reading alone,
        and whose query ends when the pipeline is left; or a function that returns a connection of any DB-API driver
        (PEP 249) for `data_source_name`, called in a thread, which then reads. An async driver of that shape is awaited
        on the engine's loop instead: the function returns an awaitable of a connection, which is closed at the end, or
        what `async with` gives one for. So `aiosqlite.connect`, `psycopg.AsyncConnection.connect`, `aiomysql.connect`,
        or a function of yours that takes one out of a pool. What costs most of a row is its driver: APSW reads SQLite
        in less time than `sqlite3`, by
        `lambda path: apsw.Connection(path, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOMUTEX)`.
        """
        source = fspath(data_source_name)
        if callable(driver_name):
            name, connect = (
                getattr(driver_name, "__qualname__", type(driver_name).__name__),
                partial(driver_name, source),
            )
        elif driver_name == "sqlite":
            name, connect = os.path.basename(source), partial(read_only_sqlite, source)
        else:
            raise PlanError(
                f'driver_name must be "sqlite", or a function that returns a connection, got {driver_name!r}'
            )
        super().__init__(QueryRows(name, query, output_dtypes(output_types), connect, driver_name == "sqlite"))


def output_dtypes(types: Any) -> tuple[np.dtype[Any], ...]:
    """Return the dtypes of columns, `object` for strings."""
    if not isinstance(types, (tuple, list)) or not types:
        raise PlanError(f"output_types must have a dtype for each column, got {types!r}")
    dtypes = [check_dtype("a column of output_types", one) for one in cast("Sequence[Any]", types)]
    for told, dtype in zip(cast("Sequence[Any]", types), dtypes, strict=True):
        if dtype.kind not in "biufUSO" or dtype == np.uint64:
            raise PlanError(f"a column of output_types is of integers, floats, bool or str, got {told!r}")
    return tuple([np.dtype(object) if dtype.kind in "US" else dtype for dtype in dtypes])


def make_csv_dataset(
    file_pattern: Filename | Sequence[Filename],
    batch_size: int,
    column_names: Sequence[str] | None = None,
    column_defaults: Sequence[Any] | None = None,
    label_name: str | None = None,
    select_columns: Sequence[int | str] | None = None,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    header: bool = True,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10_000,
    shuffle_seed: int | None = None,
    prefetch_buffer_size: int | None = None,
    num_parallel_reads: int | None = None,
    sloppy: bool = False,
    num_rows_for_inference: int | None = 100,
    compression_type: str | None = None,
    ignore_errors: bool = False,
    encoding: str = "utf-8",
    *,
    max_record_bytes: int = MAX_RECORD_BYTES,
    storage_options: StorageMapping = None,
) -> Dataset[Any]:
    """Batches of the records of CSV files, as dicts of columns by name; shuffled and without end unless told otherwise.

    With `label_name` an element is the pair of a dict of the other columns and that column. Names are those of the
    header, or `column_names`. Types are the first of int32, int64, float32, float64 and string that fits what the first
    `num_rows_for_inference` records have in a column, and what is missing is 0 or empty; unless `column_defaults` says,
    as `record_defaults` of `CsvDataset`. Files are read one after the other or `num_parallel_reads` in turn. Files and
    records are shuffled, records through a buffer. The last batch is left out if there is no end. The first records are
    read now, and an error in them is raised now. A record of more than `max_record_bytes` (256 MiB) is an error, as in
    `CsvDataset`. `storage_options` are for files at URLs, as `list_files` has them.

    >>> import asyncdata as ad, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (pathlib.Path(folder) / "a.csv").write_text("id,name\\n1,one\\n2,two\\n")
    ...     for batch in ad.experimental.make_csv_dataset(folder + "/*.csv", 2, num_epochs=1, shuffle=False):
    ...         print(batch)
    {'id': array([1, 2], dtype=int32), 'name': array([b'one', b'two'], dtype=object)}
    """
    method = "make_csv_dataset"
    decompressor(compression_type)  # raises where the mistake is made
    dialect = dialect_of(method, field_delim, use_quote_delim, header)
    shuffle, sloppy = check_flag(method, "shuffle", shuffle), check_flag(method, "sloppy", sloppy)
    ignore_errors = check_flag(method, "ignore_errors", ignore_errors)
    if column_names is None and not header:
        raise PlanError(f"{method}(header=False) needs column_names")
    files = matching(method, file_pattern, storage_options)
    open_one = partial(
        csv_file,
        compression=compression_type or None,
        block_bytes=BLOCK_BYTES,
        dialect=dialect,
        max_record_bytes=check_count(method, "max_record_bytes", max_record_bytes, 1),
        storage=StorageOptions.of(method, storage_options),
    )
    names = column_names_of(files, open_one, column_names, encoding)
    chosen = places_of(names, select_columns)
    if column_defaults is None:
        column_defaults = inferred_defaults(files, open_one, len(names), chosen, na_value, num_rows_for_inference)
    selected = [names[place] for place in chosen]
    table = table_of(column_defaults, na_value, None if select_columns is None else chosen, None)
    if len(table.columns) != len(selected):
        raise PlanError(f"column_defaults has {len(table.columns)} values for {len(selected)} columns: {selected}")
    labelled = columns_by_name(selected, label_name)
    records = read_in_turn(files, partial(open_one, table=table), shuffle, shuffle_seed, num_parallel_reads, sloppy)
    records = records.ignore_errors() if ignore_errors else records
    records = records.shuffle(shuffle_buffer_size, seed=shuffle_seed) if shuffle else records
    records = records if num_epochs == 1 else records.repeat(num_epochs)
    batches = records.batch(batch_size, drop_remainder=num_epochs is None)
    batches = in_columns(batches, labelled, table, batch_size if num_epochs is None else None)
    return batches.prefetch(AUTOTUNE if prefetch_buffer_size is None else prefetch_buffer_size)


def column_names_of(
    files: Sequence[str], open_one: Callable[..., CsvFile], told: Sequence[str] | None, encoding: str
) -> list[str]:
    """Return the names of the columns: those that were told, or the header's, which must be that of every file."""
    names = header_of(files, open_one, encoding) if told is None else list(told)
    if len(set(names)) < len(names):
        raise PlanError(f"each column needs a name of its own, got {names}; give column_names")
    return names


def header_of(files: Sequence[str], open_one: Callable[..., CsvFile], encoding: str) -> list[str]:
    """Return the names that all files have in their first record."""

    def first_record(name: str) -> Dataset[list[bytes]]:
        file = open_one(name, table=Strings())
        return Dataset[list[bytes]](replace(file, dialect=replace(file.dialect, header=False))).take(1)

    found = [list(first_record(name)) for name in files]
    for name, records in zip(files, found, strict=True):
        if not records:
            raise PlanError(f"{name}: it has no header: it is empty")
        if records != found[0]:
            raise PlanError(f"{name} has the columns {records[0]}, and {files[0]} {found[0][0]}; give column_names")
    return [field.decode(encoding) for field in found[0][0]]


def places_of(names: Sequence[str], select: Sequence[int | str] | None) -> list[int]:
    """Return the numbers of the columns to read, in order."""
    if select is None:
        return list(range(len(names)))
    wrong = [one for one in select if one not in (names if isinstance(one, str) else range(len(names)))]
    places = sorted({names.index(one) if isinstance(one, str) else one for one in select if one not in wrong})
    if wrong or len(places) != len(select) or not places:
        raise PlanError(
            f"select_columns must be names or numbers of columns, each once, of {list(names)}; got {select}"
        )
    return places


def inferred_defaults(
    files: Sequence[str],
    open_one: Callable[..., CsvFile],
    width: int,
    chosen: Sequence[int],
    na_value: str,
    rows: int | None,
) -> list[Any]:
    """Return 0 or an empty string for each column, of the first dtype that fits what the first records have there."""
    table = table_of([""] * width, na_value, None, None)
    names: Dataset[str] = Dataset(Items(files))
    records = list(names.flat_map(partial(open_one, table=table)).take(-1 if rows is None else rows))
    columns = [[record[place] for record in records if record[place]] for place in chosen]
    return [np.zeros(1, dtype) if (dtype := inferred(fields)) != "object" else "" for fields in columns]


def inferred(fields: Sequence[bytes]) -> str:
    """Return the first dtype that all fields fit."""
    return next((dtype for dtype in DTYPES[:-1] if fields and fit(fields, np.dtype(dtype))), DTYPES[-1])


def fit(fields: Sequence[bytes], dtype: np.dtype[Any]) -> bool:
    """Tell whether fields are numbers of this dtype, and finite."""
    try:
        return bool(np.isfinite(Column(0, dtype).values(fields)).all())
    except ValueError:
        return False


def read_in_turn(
    files: list[str],
    open_one: Callable[[str], CsvFile],
    shuffle: bool,
    seed: int | None,
    reads: int | None,
    sloppy: bool,
) -> Dataset[Any]:
    """Return the records of files one after the other, or of several in turn."""

    def read_csv(name: str) -> Dataset[Any]:
        return Dataset(open_one(name))

    names: Dataset[str] = Dataset(Items(files, files=True))
    names = names.shuffle(len(files), seed=seed) if shuffle else names
    if reads is None or reads == 1:
        return names.flat_map(read_csv)
    return names.interleave(
        read_csv, cycle_length=reads, num_parallel_calls=reads, deterministic=False if sloppy else None
    )


def columns_by_name(names: Sequence[str], label: str | None) -> Callable[..., Any]:
    """Return the function that makes a dict of columns, or with a label a pair."""
    if label is not None and label not in names:
        raise PlanError(f"label_name must be one of the columns {list(names)}, got {label!r}")

    def by_name(*columns: Any) -> Any:
        named = dict(zip(names, columns, strict=True))
        return named if label is None else ({name: named[name] for name in names if name != label}, named[label])

    return by_name


def in_columns(batches: Dataset[Any], labelled: Callable[..., Any], table: Table, size: int | None) -> Dataset[Any]:
    """Return batches of columns as `labelled` makes them, of which it is known what they look like."""
    call = Call("map", labelled)
    call.gives = labelled(*[TensorSpec((size,), column.dtype) for column in table.columns])
    return Dataset(Map(batches.plan, (call,)), made_from=(batches,))


def csv_file(
    filename: Filename,
    compression: str | None,
    block_bytes: int,
    dialect: Dialect,
    table: Table,
    max_record_bytes: int,
    storage: StorageOptions | None = None,
) -> CsvFile:
    """Return the source for one file."""
    path = checked("CsvDataset", filename, storage)
    most = max_record_bytes
    return CsvFile(path, compression, block_bytes, dialect=dialect, table=table, max_record_bytes=most, storage=storage)


def dialect_of(method: str, delimiter: Any, quotes: bool, header: bool) -> Dialect:
    """Return how files are written."""
    if not isinstance(delimiter, str) or len(delimiter.encode()) != 1 or delimiter in '"\r\n':
        raise PlanError(f"field_delim must be one ASCII character, no quote and no end of a line, got {delimiter!r}")
    quoted, headed = check_flag(method, "use_quote_delim", quotes), check_flag(method, "header", header)
    return Dialect(delimiter.encode(), quoted, headed)


def table_of(
    defaults: Sequence[Any], na_value: str, select: Iterable[int] | None, exclude: Iterable[int] | None
) -> Table:
    """Return which fields are read, as what, and how many fields a record may have."""
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
    """Return numbers of columns, if they are in order."""
    chosen = list(places)
    if any(place < 0 for place in chosen) or sorted(set(chosen)) != chosen:
        raise PlanError(f"{name} must be numbers of columns from 0 on, each once and in ascending order, got {chosen}")
    return chosen


def columns_of(places: Sequence[int], defaults: Sequence[Any]) -> tuple[Column, ...]:
    return tuple([column(place, default) for place, default in zip(places, defaults, strict=True)])


def column(index: int, default: Any) -> Column:
    """Return a column: of a dtype it is required, as of an array without elements; of a value it is optional."""
    default = getattr(default, "as_numpy_dtype", default)  # of a dtype of TensorFlow's
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


def dtype_of(dtype: np.dtype[Any], told: object) -> np.dtype[Any]:
    """Return the dtype of a column, `object` for strings."""
    found = np.dtype(object) if dtype.kind in "US" else dtype
    if found.name not in DTYPES or (isinstance(told, type) and dtype.kind == "O" and told not in (object, np.object_)):
        raise PlanError(f"a column is int32, int64, float32, float64 or str, got {told!r:.60} in record_defaults")
    return found
