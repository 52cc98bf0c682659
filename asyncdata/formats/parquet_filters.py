"""Filters of Parquet rows: the columns they use, the row groups that may match, and the rows that do."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import eq, ge, gt, le, lt
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from asyncdata.errors import PlanError
from asyncdata.formats.arrow_columns import arrow

__all__ = ("filter_columns", "filter_expression", "matching_groups", "matching_rows")

METHOD: Final = "ParquetDataset"

COMPARISONS: Final = {"=": eq, "==": eq, "<": lt, ">": gt, "<=": le, ">=": ge}
"""The comparisons that no NaN satisfies, which statistics leave out."""

MOST_VALUES: Final = 100
"""The most values of an `in` that are compared with the statistics of each row group."""


def filter_expression(filters: Any) -> Any:
    """Return filters as an expression; `PlanError` if they are none."""
    if isinstance(filters, arrow("pyarrow.compute", METHOD).Expression):
        return filters
    try:
        if isinstance(filters, list):
            return arrow("pyarrow.parquet", METHOD).filters_to_expression(with_large_numbers(filters))
        problem = type(filters).__name__
    except (ValueError, TypeError, OverflowError) as error:
        problem = str(error)
    raise PlanError(
        f"{METHOD}(filters=) must be an expression of pyarrow.compute, or a list such as [('year', '>', 2020)], got "
        f"{filters!r:.80}: {problem}"
    )


def with_large_numbers(part: Any) -> Any:
    """Return filters, or a part of them, with integers beyond int64 as uint64, which Arrow does not infer."""
    if isinstance(part, list):
        return [*map(with_large_numbers, cast("list[Any]", part))]
    if not isinstance(part, tuple):
        return part
    *names, value = cast("tuple[Any, ...]", part)
    if isinstance(value, (list, tuple, set)):
        values = [*cast("Iterable[Any]", value)]
        value = arrow("pyarrow", METHOD).array(values, "uint64") if any(map(is_large, values)) else values
    elif is_large(value):
        value = arrow("pyarrow", METHOD).scalar(value, "uint64")
    return (*names, value)


def is_large(value: Any) -> bool:
    """Return whether a value is an integer beyond int64."""
    return type(value) is int and value >= 1 << 63


def filter_columns(filters: Any) -> list[str] | None:
    """Return the columns that filters use; `None` for an expression, whose columns are unknown."""
    if filters is None:
        return []
    if not isinstance(filters, list):
        return None
    groups = cast("list[Any]", filters)
    found: list[str] = []
    for some in groups:
        terms = cast("list[Any]", some if isinstance(some, list) else [some])
        found += [str(term[0]) for term in terms]
    return found


def matching_rows(table: Any, filters: Any) -> tuple[Any, npt.NDArray[np.int64]]:
    """Return the rows that match, and their numbers; `PlanError` for filters that the columns do not allow."""
    pa, data = arrow("pyarrow", METHOD), arrow("pyarrow.dataset", METHOD)
    try:
        found = data.dataset(table).to_table(columns={"": filter_expression(filters)}, use_threads=False).column(0)
        matches = found.cast(pa.bool_()).fill_null(False)
    except pa.ArrowException as error:
        raise misfit(filters, error) from error
    places = np.flatnonzero(matches.to_numpy())
    try:
        return table.filter(matches), places
    except pa.ArrowNotImplementedError:  # for views, and what has them in it
        return pa.concat_tables([table.slice(0, 0), *[table.slice(place, 1) for place in places.tolist()]]), places


def matching_groups(footer: io.RawIOBase, count: int, filters: Any) -> Sequence[int]:
    """Return the numbers of the row groups whose statistics do not exclude a match, of `count`.

    An expression, whose comparisons are unknown, excludes none; nor do values that the type of a file does not hold, as
    rows can have another: timestamps of 96 bits are those of nanoseconds there, and of microseconds where years ask it.
    """
    if not isinstance(filters, list):
        return range(count)
    pa, files = arrow("pyarrow", METHOD), arrow("pyarrow.dataset", METHOD)
    fragment = files.ParquetFileFormat().make_fragment(pa.PythonFile(footer, mode="r"))
    try:
        bounds = bounds_of(with_large_numbers(filters), fragment.physical_schema)
        return range(count) if bounds is None else [group.id for group in fragment.subset(bounds).row_groups]
    except pa.ArrowException:  # rows decide, and say what does not fit them
        return range(count)


def bounds_of(filters: list[Any], schema: Any) -> Any:
    """Return an expression that is true for all rows that match and that statistics decide; `None` if there is none."""
    alternatives = filters if isinstance(filters[0], list) else [filters]
    found: list[Any] = []
    for terms in alternatives:
        bounds = [bound for term in cast("list[Any]", terms) if (bound := bound_of(schema, *term)) is not None]
        if not bounds:
            return None
        found.append(reduce(lambda one, other: one & other, bounds))
    return any_of(found)


def bound_of(schema: Any, column: str, comparison: str, value: Any) -> Any:
    """Return a comparison as an expression, `None` for one that statistics cannot decide."""
    field = arrow("pyarrow.compute", METHOD).field(column)
    if comparison in COMPARISONS:
        return COMPARISONS[comparison](field, value)
    values = members(value, schema.field(column).type) if comparison == "in" else None
    # not `isin`: it takes 0.0 for -0.0 in rows, but not in statistics
    return None if values is None else any_of([field == one for one in values])


def members(values: Any, kind: Any) -> list[Any] | None:
    """Return the values of an `in` in the type of the column, as `isin` compares rows; `None` if there is no telling.

    In their own type they would be other numbers: 0.1 is no float32, and a date has no hour.
    """
    pa = arrow("pyarrow", METHOD)
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    try:
        found = list(pa.array([*values]).cast(kind))
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None  # then rows are converted instead, or the filter does not fit them
    decided = 0 < len(found) <= MOST_VALUES and all(one.is_valid and one == one for one in found)  # noqa: PLR0124
    return found if decided else None


def any_of(expressions: list[Any]) -> Any:
    """Return the expression that is true where one of these is."""
    return reduce(lambda one, other: one | other, expressions)


def misfit(filters: Any, error: Exception) -> PlanError:
    """Return the error for filters that the types of the columns do not allow."""
    return PlanError(f"{METHOD}(filters={filters!r:.80}) does not fit the columns: {error}")
