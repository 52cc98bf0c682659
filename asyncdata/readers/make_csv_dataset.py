"""make_csv_dataset: CSV files as batches of columns by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from asyncdata.dataset import Dataset
from asyncdata.elements.spec import TensorSpec
from asyncdata.elements.validation import check_flag
from asyncdata.errors import PlanError
from asyncdata.executors.function_call import Call
from asyncdata.formats.compression import decompressor
from asyncdata.formats.csv import Column, Strings, Table
from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.graph.node import check_count
from asyncdata.options import AUTOTUNE
from asyncdata.readers.csv import DTYPES, dialect_of, table_of
from asyncdata.readers.files import CacheFolder, Filename, StorageMapping
from asyncdata.sources.csv import CsvFile
from asyncdata.sources.file_names import FileNames
from asyncdata.sources.listing import matching
from asyncdata.storage import BLOCK_BYTES, StorageOptions
from asyncdata.transforms.map import Map

__all__ = ("make_csv_dataset",)


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
    cache_dir: CacheFolder = None,
) -> Dataset[Any]:
    """Batches of the records of CSV files, as dicts of columns by name; by default shuffled and repeated forever.

    With `label_name` an element is a pair: a dict of the other columns, and that column. Names are those of the header,
    or `column_names`. The type of a column is the first of int32, int64, float32, float64 and string that fits its
    first `num_rows_for_inference` values, and missing values are 0 or empty; or give `column_defaults`, which are as
    `record_defaults` of `CsvDataset`. Files are read one after another or `num_parallel_reads` in turn. Files and
    records are shuffled, records through a buffer. If the dataset is infinite there is no incomplete last batch. The
    first records are read at once, and an error in them is raised at once. A record of more than `max_record_bytes`
    (256 MiB) is an error, as in `CsvDataset`. `storage_options` are for files at URLs, as for `list_files`, and
    `cache_dir` is a folder or a `CacheDir` that caches them on this machine.

    >>> import asyncdata as ad, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (pathlib.Path(folder) / "a.csv").write_text("id,name\\n1,one\\n2,two\\n")
    ...     for batch in ad.experimental.make_csv_dataset(folder + "/*.csv", 2, num_epochs=1, shuffle=False):
    ...         print(batch)
    {'id': array([1, 2], dtype=int32), 'name': array([b'one', b'two'], dtype=object)}
    """
    method = "make_csv_dataset"
    decompressor(compression_type)  # raises here for a wrong argument
    dialect = dialect_of(method, field_delim, use_quote_delim, header)
    shuffle, sloppy = check_flag(method, "shuffle", shuffle), check_flag(method, "sloppy", sloppy)
    ignore_errors = check_flag(method, "ignore_errors", ignore_errors)
    if column_names is None and not header:
        raise PlanError(f"{method}(header=False) needs column_names")
    files = matching(method, file_pattern, storage_options)
    open_one = partial(
        CsvFile,
        compression=compression_type,
        block_bytes=BLOCK_BYTES,
        dialect=dialect,
        max_record_bytes=check_count(method, "max_record_bytes", max_record_bytes, 1),
        storage=StorageOptions.of(method, storage_options, cache_dir),
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
    files: Sequence[str], open_one: Callable[..., CsvFile], given: Sequence[str] | None, encoding: str
) -> list[str]:
    """Return the names of the columns: those that were given, or those of the header, which all files must share."""
    names = header_of(files, open_one, encoding) if given is None else list(given)
    if len(set(names)) < len(names):
        raise PlanError(f"the names of columns must be unique, got {names}; give column_names")
    return names


def header_of(files: Sequence[str], open_one: Callable[..., CsvFile], encoding: str) -> list[str]:
    """Return the names in the first record, which must be the same in all files."""

    def first_record(name: str) -> Dataset[list[bytes]]:
        file = open_one(name, table=Strings())
        return Dataset[list[bytes]](replace(file, dialect=replace(file.dialect, header=False))).take(1)

    found = [list(first_record(name)) for name in files]
    for name, records in zip(files, found, strict=True):
        if not records:
            raise PlanError(f"{name}: it has no header: it is empty")
        if records != found[0]:
            raise PlanError(f"{name} has the columns {records[0]}, and {files[0]} {found[0][0]}; give column_names")
    return [field.decode(encoding).removeprefix("\ufeff") for field in found[0][0]]  # some programs begin with a BOM


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
    """Return 0 or an empty string for each column, of the first dtype that fits the column's first values."""
    table = table_of([""] * width, na_value, None, None)
    records_of = cast("Callable[..., Dataset[Any]]", partial(open_one, table=table))
    records = list(Dataset[Any](FileNames(files)).flat_map(records_of).take(-1 if rows is None else rows))
    columns = [[record[place] for record in records if record[place]] for place in chosen]
    return [np.zeros(1, dtype) if (dtype := inferred(fields)) != "object" else "" for fields in columns]


def inferred(fields: Sequence[bytes]) -> str:
    """Return the first dtype that fits all fields."""
    return next((dtype for dtype in DTYPES[:-1] if fields and fit(fields, np.dtype(dtype))), DTYPES[-1])


def fit(fields: Sequence[bytes], dtype: np.dtype[Any]) -> bool:
    """Return whether fields are finite numbers of this dtype."""
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
    """Return the records of files one after another, or of several in turn."""

    def read_csv(name: str) -> Dataset[Any]:
        return Dataset(open_one(name))

    names: Dataset[str] = Dataset(FileNames(files))
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
    """Return batches of columns as `labelled` makes them, with their signature."""
    call = Call("map", labelled)
    call.gives = labelled(*[TensorSpec((size,), column.dtype) for column in table.columns])
    return Dataset(Map(batches.plan, (call,)), made_from=(batches,))
