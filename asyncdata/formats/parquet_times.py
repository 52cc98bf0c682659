"""INT96 times of Parquet files: which columns have them, and which rows have times below a microsecond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncdata.formats.arrow_columns import is_a, pairs_of

__all__ = ("INT96_UNIT", "inexact_rows", "int96_columns")

INT96_UNIT: Final = "us"
"""The unit of INT96 times. They have nanoseconds and all years, for which NumPy has no one unit. Spark, which still
writes them, has microseconds, and years such as 0001 and 9999 that nanoseconds do not reach."""


def int96_columns(coerced: Any, schema: Any) -> list[str]:
    """Return the columns whose types differ in two schemas of a file: with INT96 in `INT96_UNIT`, and without."""
    pairs = zip(coerced, schema, strict=True)
    return [] if coerced.equals(schema) else [one.name for one, other in pairs if one.type != other.type]


def inexact_rows(coerced: Any, nanoseconds: Any) -> dict[int, str]:
    """Return the rows of which an INT96 time has a part below a microsecond, each with the name of the column.

    Both tables have the same columns, the second in nanoseconds, which wrap around far from 1970, as 64 bits do.
    """
    found: dict[int, str] = {}
    for name in nanoseconds.column_names:
        one, other = coerced[name].combine_chunks(), nanoseconds[name].combine_chunks()
        if not are_same(one, other):
            rows = range(len(one))
            found |= {row: name for row in rows if not are_same(one.slice(row, 1), other.slice(row, 1))}
    return found


def are_same(coerced: Any, nanoseconds: Any) -> bool:
    """Return whether all times in an array, at any depth, are equal."""
    if coerced.type == nanoseconds.type:
        return True
    if is_a("timestamp", coerced.type):
        return np.array_equal(stored_integers(coerced) * 1000, stored_integers(nanoseconds))
    return all(map(are_same, parts_of(coerced), parts_of(nanoseconds)))


def parts_of(array: Any) -> Sequence[Any]:
    """Return the arrays of which one with an inner structure consists."""
    if is_a("struct", array.type):
        return [array.field(place) for place in range(array.type.num_fields)]
    return pairs_of(array)[:2] if is_a("map", array.type) else [array.flatten()]


def stored_integers(times: Any) -> Any:
    """Return times as they are stored, 0 for missing ones."""
    return times.view("int64").fill_null(0).to_numpy()
