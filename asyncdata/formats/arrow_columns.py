"""Converts Arrow columns to NumPy arrays, without creating rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from asyncdata.runtime.optional_packages import require

__all__ = ("INSTALL", "arrow", "columns_of")

INSTALL = "'asyncdata[parquet]'"


def arrow(module: str, method: str) -> Any:
    """Return a module of pyarrow, or raise an error that says what to install."""
    return require(module, method, INSTALL)


def columns_of(table: Any) -> dict[str, Any]:
    """Return a table's columns by name: arrays of numbers, or of objects for strings, lists and missing values.

    Structs become dicts of columns, and lists of one length arrays with one more axis. `ValueError` for columns with
    one name, or for values that Python does not have.
    """
    names = table.column_names
    if len(set(names)) < len(names):
        raise ValueError(f"it has two columns {next(name for name in names if names.count(name) > 1)!r}")
    return {name: column_of(table.column(place)) for place, name in enumerate(table.column_names)}


def column_of(column: Any) -> Any:
    """Return one column."""
    pa = arrow("pyarrow", "columns of Arrow")
    kind = column.type
    if pa.types.is_dictionary(kind):
        return column_of(column.cast(kind.value_type))
    if isinstance(kind, pa.BaseExtensionType):
        stored = column_of(pa.chunked_array([part.storage for part in column.chunks], kind.storage_type))
        return shaped(stored, kind) if isinstance(kind, pa.FixedShapeTensorType) else stored
    if pa.types.is_struct(kind) and not column.null_count and kind.num_fields:
        fields = zip([kind.field(place).name for place in range(kind.num_fields)], column.flatten(), strict=True)
        return {name: column_of(part) for name, part in fields}
    if pa.types.is_fixed_size_list(kind) and not column.null_count and is_plain(pa, kind.value_type):
        return lists_of_one_length(pa, column, kind.list_size)
    if column.null_count or not is_plain(pa, kind):
        return objects_of(pa, column)
    return column.to_numpy()


def is_plain(pa: Any, kind: Any) -> bool:
    """Return whether values are numbers or times, which NumPy also has."""
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    is_time = pa.types.is_timestamp(kind) and kind.tz is None
    return is_number or is_time or pa.types.is_duration(kind) or pa.types.is_date(kind)


def lists_of_one_length(pa: Any, column: Any, size: int) -> Any:
    """Return lists as rows of one array."""
    values = pa.chunked_array([part.flatten() for part in column.chunks], column.type.value_type)
    if values.null_count:
        return objects_of(pa, column)
    return values.to_numpy().reshape(len(column), size)


def shaped(rows: npt.NDArray[Any], kind: Any) -> npt.NDArray[Any]:
    """Return lists of one length as rows of one array, given their numbers; as objects if some are missing."""
    axes = kind.permutation or range(len(kind.shape))
    if rows.dtype != object:
        return rows.reshape(len(rows), *kind.shape).transpose(0, *(1 + axis for axis in axes))
    for place, row in enumerate(rows):
        if row is not None:
            rows[place] = row.reshape(kind.shape).transpose(*axes)
    return rows


def objects_of(pa: Any, column: Any) -> npt.NDArray[Any]:
    """Return values without a NumPy dtype as objects: lists of numbers as arrays, missing values as None."""
    kind = column.type
    if is_plain(pa, kind):
        return scalars_of(column)
    if pa.types.is_struct(kind) and kind.num_fields:
        return structs_of(column)
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if listed and is_plain(pa, kind.value_type):
        incomplete = any(part.values.null_count for part in column.chunks)  # also those of missing lists
        return lists_with_missing(column) if incomplete else column.to_numpy()
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return column.to_numpy()
    try:
        return filled(len(column), column.to_pylist())
    except OverflowError as error:
        raise ValueError(f"a value of the type {kind} is out of Python's range: {error}") from error


def filled(size: int, values: Any) -> npt.NDArray[Any]:
    """Return values as an array of objects."""
    found = np.empty(size, object)
    found[:] = values
    return found


def scalars_of(column: Any) -> npt.NDArray[Any]:
    """Return numbers or times as NumPy's, as in a column without missing values, and missing ones as None."""
    found = np.empty(len(column), object)
    found[column.is_valid().to_numpy(zero_copy_only=False)] = [*column.drop_null().to_numpy(zero_copy_only=False)]
    return found


def lists_with_missing(column: Any) -> npt.NDArray[Any]:
    """Return lists of numbers as arrays; those with missing values as arrays of objects, so no number is rounded."""
    found = np.empty(len(column), object)
    for place, row in enumerate(column):
        if (values := row.values) is not None:
            found[place] = scalars_of(values) if values.null_count else values.to_numpy(zero_copy_only=False)
    return found


def structs_of(column: Any) -> npt.NDArray[Any]:
    """Return structs as dicts of the same values as in a column without missing structs."""
    kind = column.type
    names = [kind.field(place).name for place in range(kind.num_fields)]
    rows = zip(*(column_of(part) for part in column.flatten()), strict=True)
    there = column.is_valid().to_pylist()
    return filled(len(column), [dict(zip(names, row)) if valid else None for valid, row in zip(there, rows)])
