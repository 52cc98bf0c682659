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

    Structs become dicts of columns, and lists of one length arrays with one more axis.
    """
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
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or (listed and is_plain(pa, kind.value_type)):
        return column.to_numpy()
    found = np.empty(len(column), object)
    found[:] = column.to_pylist()
    return found
