"""Whether values of several dtypes, or a table of another package, are unchanged in one array.

NumPy promotes without a word: integers of 64 bits to floats, dates to a unit in which they overflow, numbers to
strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from asyncdata.errors import StructureError

__all__ = ("check_integers", "check_table", "in_one_dtype", "unchanged")

Array = npt.NDArray[Any]

TABLES: Final = {
    "pandas": "pass dict(frame), or one column",
    "polars": "pass frame.to_dict(), or one column",
    "pyarrow": "pass dict(zip(table.column_names, table.columns)), or one column",
}
"""Packages of tables, and what to do with a table of several columns."""


def in_one_dtype(arrays: Sequence[Array], where: str, whole: str = "batch") -> list[Array]:
    """Return arrays in the dtype that holds all, or as objects if one is of objects: NumPy would make times numbers,
    and numbers Python's. `StructureError` if a value would change."""
    if len({array.dtype for array in arrays}) == 1:
        return list(arrays)
    if any(array.dtype == object for array in arrays):
        return [array if array.dtype == object else as_objects(array) for array in arrays]
    try:
        dtype = common_dtype(arrays)
        made = [array.astype(dtype, copy=False) for array in arrays]
    except (TypeError, ValueError, OverflowError) as error:
        raise StructureError(
            f"{where} of the elements of the {whole} has dtypes without one in common: {error}"
        ) from None
    for place, (array, row) in enumerate(zip(arrays, made, strict=True)):
        if not is_same(np.asarray(array), np.asarray(row)):
            raise StructureError(
                f"{where} of element {place} of the {whole} has dtype {array.dtype}, and would change as {dtype}, "
                "which holds the others: give all one dtype, with astype in a map"
            )
    return made


def common_dtype(arrays: Sequence[Array]) -> np.dtype[Any]:
    """Return the dtype of several arrays together: that of integers, if all have integers.

    What NumPy makes of an empty list, floats without a value, is left out.
    """
    counted = [array for array in arrays if array.size or array.dtype != np.float64] or arrays
    dtype = np.result_type(*{array.dtype for array in counted})
    if dtype.kind != "f" or any(array.dtype.kind not in "biu" for array in counted):
        return dtype
    large = any(array.dtype == np.uint64 and array.size and array.max() >= 2**63 for array in counted)
    return np.dtype(np.uint64 if large else np.int64)


def as_objects(array: Array) -> Array:
    """Return an array of the same values, each an object."""
    if isinstance(array, np.ma.MaskedArray):
        return array.astype(object)
    return np.fromiter(array.reshape(-1), object, array.size).reshape(array.shape)


def is_same(value: Array, row: Any) -> bool:
    """Return whether values are unchanged in another dtype."""
    kind, made = value.dtype.kind, row.dtype.kind
    if row.dtype.names is not None:
        return all(is_same(value[name], row[name]) for name in row.dtype.names)
    if made in "mMSU":
        return kind == made and (made in "SU" or np.array_equal(row.astype(value.dtype), value, equal_nan=True))
    if kind in "iu" and made in "iu":
        return bool((row == value).all())
    if kind not in "iu" or value.itemsize < row.real.itemsize:
        return True
    with np.errstate(invalid="ignore"):
        back = row.real.astype(value.dtype)
    return bool((back == value).all()) and bool((row.real < 2.0 ** (8 * value.itemsize - (kind == "i"))).all())


def unchanged(value: Any, declared: bool = False) -> Array:
    """Return an array-like as NumPy makes an array of it; `StructureError` if what a list holds would change, but for
    integers among floats whose dtype is `declared`."""
    if not isinstance(value, list):
        return np.asarray(value)
    items = cast("list[Any]", value)
    try:
        array: Array = np.asarray(items)
    except np.ma.MaskError:
        raise masked_in_list() from None
    kind = array.dtype.kind
    hidden = kind in "fc" and (array.dtype.itemsize > 8 or not np.isfinite(array).all())  # NaN, or a number
    if has_masked(items, array.ndim - (not hidden)):
        raise masked_in_list()
    if kind in "mMV":
        in_one_dtype([*map(np.asarray, members(items))], "a value", "list")
    elif kind in "fc" and not declared:
        check_integers(items, array)
    return array


def has_masked(value: Sequence[Any], levels: int) -> bool:
    """Return whether a list, or a list in it, so many levels deep, holds a masked array."""
    if not levels:
        return False
    if any(issubclass(kind, np.ma.MaskedArray) for kind in set(map(type, value))):
        return True
    lists = [cast("Sequence[Any]", one) for one in value if isinstance(one, (list, tuple))] if levels > 1 else []
    return has_masked([*chain.from_iterable(lists)], levels - 1)


def members(value: Sequence[Any]) -> Iterator[Any]:
    """Yield what a list, and the lists in it, hold."""
    for one in value:
        if isinstance(one, (list, tuple)):
            yield from members(cast("Sequence[Any]", one))
        else:
            yield one


def masked_in_list() -> StructureError:
    """Return the error for a masked value in a list."""
    return StructureError("a value in a list is masked, and its mask would be lost: make a masked array of the list")


def check_integers(value: list[Any], array: Array) -> None:
    """Raise `StructureError` if integers in a list are other floats in an array of it."""
    if not (np.abs(array) >= 2.0 ** (np.finfo(array.dtype).nmant + 1)).any():  # all integers below are floats
        return
    for one, made in zip(np.asarray(value, object).flat, array.flat, strict=True):
        if isinstance(one, (int, np.integer)) and int(cast("Any", one)) != made.item():
            raise StructureError(
                f"{one} in a list would change as {array.dtype}, which holds the others: "
                "make an array of the list, with a dtype"
            )


def check_table(value: Any, array: Array) -> None:
    """Raise `StructureError` if integers of a table or a column of another package are floats in an array of it, or if
    fields have lost their names."""
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    package = kind.__module__.partition(".")[0]
    if package not in TABLES:
        return
    dtypes = dtypes_of(value)
    if package == "polars" and "struct" in dtypes:
        raise StructureError(f"the fields of {dtypes} in a {kind.__name__} would lose their names: make them columns")
    if re.search(r"(?<![a-z=])u?int\d", dtypes) and has_floats(array, dtypes):
        raise StructureError(
            f"integers of a {kind.__name__} of {dtypes} would become floats, as others are floats or missing: "
            f"{TABLES[package]}; fill missing values"
        )


def dtypes_of(value: Any) -> str:
    """Return the dtypes of a table or a column, in lower case."""
    found = next((getattr(value, name) for name in ("dtypes", "schema", "dtype", "type") if hasattr(value, name)), "")
    types: Any = getattr(found, "types", found)
    types = types.tolist() if hasattr(types, "tolist") else types
    several = cast("list[Any]", types) if isinstance(types, list) else [types]
    return ", ".join(sorted({*map(str, several)})).lower()


def has_floats(array: Array, dtypes: str) -> bool:
    """Return whether an array has floats, though the dtypes of objects in it have none."""
    if array.dtype != object:
        return array.dtype.kind in "fc"
    if "float" in dtypes or "double" in dtypes:
        return False
    return any(isinstance(one, float) or getattr(one, "dtype", array.dtype).kind == "f" for one in array.flat)
