"""Converts Arrow columns to NumPy arrays: the type of a column alone decides the form of its values."""

from __future__ import annotations

import copy
import decimal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from asyncdata.elements.borrowed_columns import writable
from asyncdata.elements.nullable_column import NullableColumn
from asyncdata.elements.structure import objects, rows_of, stack
from asyncdata.system.optional_packages import require

__all__ = ("INSTALL", "arrow", "check_values", "columns_of", "is_a", "pairs_of")

INSTALL = "'asyncdata[parquet]'"

Array = npt.NDArray[Any]

IMMUTABLE: Final = frozenset({str, bytes, type(None), decimal.Decimal})
"""Types of objects that several rows may share."""

INTERVAL: Final = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
"""How Arrow stores intervals of months, days and nanoseconds."""


def arrow(module: str, method: str) -> Any:
    """Return a module of pyarrow, or raise an error that says what to install."""
    return require(module, method, INSTALL)


def columns_of(table: Any) -> dict[str, Any]:
    """Return a table's columns by name: arrays with a value for each row, and dicts of columns for structs.

    Rows are the values along the first axis, and may be read-only: `borrowed` copies what elements need.
    The type of a column decides their form, in each row, list and struct; the table is in docs/formats.md. `stack` of
    any rows in turn is their batch: an array of objects does not show it.
    `ValueError` for columns, or fields of a struct, with one name.
    """
    pa = arrow("pyarrow", "columns of Arrow")
    check_names("it has two columns", table.column_names)
    return {name: joined([*map(column_of, chunks_of(pa, table.column(name)))]) for name in table.column_names}


def check_values(table: Any) -> None:
    """Raise an error of pyarrow if values of a table, or of a record batch, cannot be those of their types.

    Dates in milliseconds may have a time of day, which `datetime64` holds too: Arrow forbids it, and its JavaScript
    library writes it.
    """
    pa = arrow("pyarrow", "columns of Arrow")
    table.validate()
    for place, kind in enumerate(table.schema.types):
        with suppress(KeyError):  # of a type that pyarrow has no class for, which is an error where a value is needed
            table.column(place).validate(full=kind != pa.date64())


def check_names(problem: str, names: Sequence[str]) -> None:
    """Raise `ValueError` if a name occurs twice."""
    if len(set(names)) < len(names):
        raise ValueError(f"{problem} {next(name for name in names if names.count(name) > 1)!r}")


def chunks_of(pa: Any, column: Any) -> list[Any]:
    """Return the parts of a column, at least one."""
    return column.chunks or [pa.nulls(0, column.type)]


def joined(parts: Sequence[Any]) -> Any:
    """Return consecutive parts of a column as one."""
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, dict) for part in parts):
        return {name: joined([part[name] for part in parts]) for name in parts[0]}
    if all(isinstance(part, np.ndarray) for part in parts):
        arrays = cast("Sequence[Array]", parts)
        if len({(array.dtype, array.shape[1:]) for array in arrays}) == 1:
            return np.concatenate(arrays)
    return objects([row for part in parts for row in elements_of(part)])


def size_of(column: Any) -> int:
    """Return the number of rows."""
    while isinstance(column, dict):
        column = next(iter(cast("dict[str, Any]", column).values()))
    return len(column)


def elements_of(column: Any) -> list[Any]:
    """Return the values of a column; arrays in them may be changed."""
    return rows_of(writable(column), size_of(column))


def column_of(array: Any) -> Any:
    """Return the values of an Arrow array."""
    kind = array.type
    return next((form for name, form in FORMS.items() if is_a(name, kind)), plain_objects)(array)


def is_a(name: str, kind: Any) -> bool:
    """Return whether a type is of this kind, which older versions of pyarrow may not have."""
    pa = arrow("pyarrow", "columns of Arrow")
    if name == "extension":
        return isinstance(kind, pa.BaseExtensionType)
    test = getattr(pa.types, f"is_{name}", None)
    return test is not None and test(kind)


def no_items(kind: Any) -> Array | None:
    """Return an empty list of a type that makes one array in a list, as numbers and lists of a fixed size do; `None`
    for other types, which make an array of objects."""
    pa = arrow("pyarrow", "columns of Arrow")
    if is_a("extension", kind):
        found = no_items(pa.bool_() if is_bool8(kind) else kind.storage_type)
        return tensors(found, kind) if found is not None and is_tensor(kind) else found
    if is_a("dictionary", kind) or is_a("run_end_encoded", kind):
        return no_items(kind.value_type)
    if is_a("fixed_size_list", kind):
        found = no_items(kind.value_type)
        return None if found is None else np.empty((0, kind.list_size, *found.shape[1:]), found.dtype)
    return all_numbers(pa.array([], kind)) if any(is_a(name, kind) for name in NUMBERS) else None


def is_bool8(kind: Any) -> bool:
    """Return whether values are booleans that are stored as bytes."""
    return kind.extension_name == "arrow.bool8"


def is_tensor(kind: Any) -> bool:
    """Return whether values are tensors of one shape."""
    return kind.extension_name == "arrow.fixed_shape_tensor"


def valid_places(array: Any) -> npt.NDArray[np.bool_]:
    """Return which values are not missing."""
    return array.is_valid().to_numpy(zero_copy_only=False)


def numbers(array: Any) -> Array | NullableColumn:
    """Return numbers and times."""
    if array.null_count:
        there, valid = all_numbers(array.drop_null()), valid_places(array)
        values = np.zeros(len(array), there.dtype)
        values[valid] = there
        return NullableColumn(values, valid)
    return all_numbers(array)


def all_numbers(array: Any) -> Array:
    """Return numbers and times none of which is missing."""
    pa = arrow("pyarrow", "columns of Arrow")
    kind = array.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return array.view(pa.timestamp(kind.unit)).to_numpy(zero_copy_only=False)
    if pa.types.is_time(kind):
        since_midnight = array.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_numpy(zero_copy_only=False)
        return since_midnight.astype(np.int64).view(f"m8[{kind.unit}]")
    return array.to_numpy(zero_copy_only=False)


def plain_objects(array: Any) -> Array:
    """Return texts, bytes and decimals; `ValueError` for a text that is not UTF-8, which Parquet may hold."""
    pa = arrow("pyarrow", "columns of Arrow")
    try:
        return array.to_numpy(zero_copy_only=False)
    except NotImplementedError:
        return objects(array.to_pylist())
    except pa.ArrowException:
        array.validate(full=True)
        raise


def intervals(array: Any) -> Any:
    """Return intervals as dicts of months, days and nanoseconds."""
    raw = stored(array, 1, INTERVAL)
    return with_missing({name: raw[name].copy() for name in cast("Any", INTERVAL).names}, array)


def stored(array: Any, place: int, dtype: Any) -> Array:
    """Return the numbers in one of the buffers of an array."""
    dtype, count = np.dtype(dtype), len(array)
    data = array.buffers()[place] if count else b""
    return np.frombuffer(data, dtype, count, array.offset * dtype.itemsize if count else 0)


def structs(array: Any) -> Any:
    """Return structs as columns; as dicts and None if some are missing."""
    kind = array.type
    names = [kind.field(place).name for place in range(kind.num_fields)]
    check_names("a struct has two fields", names)
    columns = {name: column_of(array.field(place)) for place, name in enumerate(names)}
    return with_missing(columns, array) if names else objects([{} if one else None for one in valid_places(array)])


def with_missing(columns: dict[str, Any], array: Any) -> Any:
    """Return columns unchanged if no row of an Arrow array is missing; else as dicts and None."""
    if not array.null_count:
        return columns
    rows = zip(elements_of(columns), valid_places(array), strict=True)
    return objects([row if valid else None for row, valid in rows])


def lists(array: Any) -> Array:
    """Return lists of any kind as arrays."""
    kind, valid = array.type, valid_places(array)
    if is_a("fixed_size_list", kind):
        lengths = np.where(valid, kind.list_size, 0)
    else:
        lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    stops = np.cumsum(lengths, dtype=np.int64)
    some = array.flatten() if lengths.any() else array.values[:0]  # without those of missing lists
    items = column_of(some)
    found = arrays_of_items(items, stops - lengths, stops, valid, no_items(kind.value_type))
    none = None if len(array) else no_items(kind)
    return found if none is None else none


def maps(array: Any) -> Array:
    """Return maps as arrays of their pairs, each a tuple of key and value."""
    keys, values, offsets = pairs_of(array)
    pairs = objects([*zip(*[elements_of(column_of(part)) for part in (keys, values)], strict=True)])
    return arrays_of_items(pairs, offsets[:-1], offsets[1:], valid_places(array), None)


def pairs_of(array: Any) -> tuple[Any, Any, Array]:
    """Return the keys and values of maps, and where the pairs of each map begin and end."""
    offsets = array.offsets.to_numpy(zero_copy_only=False) if len(array) else np.zeros(1, np.int32)
    start, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    return array.keys.slice(start, count), array.items.slice(start, count), offsets - start


def arrays_of_items(items: Any, starts: Array, stops: Array, valid: Array, none: Array | None) -> Array:
    """Return the items from each start to its stop as an array, all as rows of one array if they have one length, which
    may be read-only.

    `none` is an empty list of items that make one array, unless one of them is missing; `None` if they are objects.
    """
    if isinstance(items, (dict, NullableColumn)) or (none is None and items.ndim > 1):
        items = objects(elements_of(items))
    uniform = none is None or items.dtype != object
    sizes = stops - starts
    if uniform and len(valid) and valid.all() and (sizes == sizes[0]).all() and sizes.sum() == len(items):
        return items.reshape(len(valid), int(sizes[0]), *items.shape[1:])
    rows = cast("Array", items if items.flags.writeable else items.copy())
    found = np.empty(len(valid), object)
    for place, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        if valid[place]:
            part = rows[start:stop]
            found[place] = part if none is None or uniform else array_of_list(part, none)
    return found


def array_of_list(items: Array, none: Array) -> Array:
    """Return the items of one list as an array of numbers; as objects if some, or items of them, are missing."""
    if not len(items):
        return none
    return stack([*items]) if all(np.shape(item) == none.shape[1:] for item in items) else items


def values_of_extension(array: Any) -> Any:
    """Return tensors as arrays, and values of other types of extensions as those of their storage."""
    kind, storage = array.type, array.storage
    found = column_of(storage.cast("bool") if is_bool8(kind) else storage)
    return tensors(found, kind) if is_tensor(kind) else found


def tensors(rows: Array, kind: Any) -> Array:
    """Return lists of one length with the shape of their tensors."""
    axes = kind.permutation or range(len(kind.shape))
    if rows.dtype != object:
        return rows.reshape(len(rows), *kind.shape).transpose(0, *(1 + axis for axis in axes))
    return objects([None if row is None else row.reshape(kind.shape).transpose(*axes) for row in rows])


def values_of_runs(array: Any) -> Any:
    """Return the values of a run-end encoded array."""
    start, count = int(array.offset), len(array)
    ends: Any = array.run_ends.to_numpy()
    runs: Array = ends.searchsorted(np.arange(start, start + count), side="right")
    return picked(column_of(array.values), runs, np.ones(count, bool))


def values_of_dictionary(array: Any) -> Any:
    """Return the values of a dictionary-encoded array."""
    indices = array.indices
    places = indices.fill_null(0).to_numpy(zero_copy_only=False)
    return picked(column_of(array.dictionary), places, valid_places(indices))


def picked(column: Any, places: Array, valid: Array) -> Any:
    """Return the values at some places, each its own; None where it is not valid."""
    rows = elements_of(column)
    shared = all(kind in IMMUTABLE or issubclass(kind, np.generic) for kind in set(map(type, rows)))
    if isinstance(column, np.ndarray) and valid.all():
        values = cast("Array", column)
        if shared or values.dtype != object:
            return values[places]
    pairs = zip(places.tolist(), valid.tolist(), strict=True)
    found = [rows[place] if there else None for place, there in pairs]
    return objects(found if shared else [copy.deepcopy(row) for row in found])


def union_values(array: Any) -> Array:
    """Return the values of a union, each in the form of its own type."""
    kind = array.type
    columns = [column_of(array.field(place)) for place in range(kind.num_fields)]
    fields = dict(zip(kind.type_codes, [elements_of(column) for column in columns], strict=True))
    places = stored(array, 2, np.int32).tolist() if kind.mode == "dense" else range(len(array))
    codes = stored(array, 1, np.int8).tolist()  # `type_codes` of pyarrow are those of the whole, not of a slice
    return objects([fields[code][place] for code, place in zip(codes, places, strict=True)])


NUMBERS: Final = ("integer", "floating", "boolean", "timestamp", "duration", "date", "time")
"""Kinds of types of which NumPy has numbers or times."""

FORMS: Final[dict[str, Callable[[Any], Any]]] = {
    "extension": values_of_extension,
    "dictionary": values_of_dictionary,
    "run_end_encoded": values_of_runs,
    "struct": structs,
    "map": maps,
    **dict.fromkeys(("list", "large_list", "fixed_size_list", "list_view", "large_list_view"), lists),
    **dict.fromkeys(NUMBERS, numbers),
    "interval": intervals,
    "union": union_values,
}
"""How values of each kind of type are converted; those of others are objects."""
