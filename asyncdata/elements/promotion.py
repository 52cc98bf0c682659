"""Whether values of several dtypes, or a table of another package, are unchanged in one array.

NumPy promotes without a word: integers of 64 bits to floats, dates to a unit in which they overflow, numbers to
strings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from asyncdata.errors import StructureError

__all__ = ("check_promotion", "check_table", "integers_of")

Array = npt.NDArray[Any]

PROMOTED: Final = frozenset("fcmMSU")
"""Kinds of dtypes to which values of other dtypes may be promoted and change."""

TABLES: Final = {
    "pandas": "pass dict(frame), or one column",
    "polars": "pass frame.to_dict(), or one column",
    "pyarrow": "pass dict(zip(table.column_names, table.columns)), or one column",
}
"""Packages of tables, and what to do with a table of several columns."""


def check_promotion(column: Sequence[Any], made: Array, where: str) -> None:
    """Raise `StructureError` if some of the values that were stacked have changed in the array that was made."""
    if made.dtype.kind not in PROMOTED:
        return
    values = [np.asarray(value) for value in column]
    if len({value.dtype for value in values}) == 1:
        return
    for place, (value, row) in enumerate(zip(values, made, strict=True)):
        if not is_same(value, np.asarray(row)):
            raise StructureError(
                f"{where} of element {place} of the batch has dtype {value.dtype}, and would change as {made.dtype}, "
                "which holds the others: give all one dtype, with astype in a map"
            )


def is_same(value: Array, row: Any) -> bool:
    """Return whether values are unchanged in another dtype."""
    kind, made = value.dtype.kind, row.dtype.kind
    if kind == "O":  # integers beyond 64 bits
        return all(one == int(other) for one, other in zip(value.flat, row.flat, strict=True))
    if made in "mMSU":
        return kind == made and (made in "SU" or np.array_equal(row.astype(value.dtype), value, equal_nan=True))
    if kind not in "iu" or value.itemsize < row.real.itemsize:
        return True
    with np.errstate(invalid="ignore"):
        back = row.real.astype(value.dtype)
    return bool((back == value).all()) and bool((row.real < 2.0 ** (8 * value.itemsize - (kind == "i"))).all())


def integers_of(column: Sequence[Any]) -> Array | None:
    """Return integers of several types as an array of integers; `None` if some are no integers, or do not fit."""
    if not all(isinstance(value, (int, np.integer, np.bool_)) for value in column):
        return None
    values = [int(value) for value in column]
    least, most = min(values), max(values)
    if least < -(2**63) or most >= (2**63 if least < 0 else 2**64):
        return None
    return np.array(values, np.int64 if most < 2**63 else np.uint64)


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
