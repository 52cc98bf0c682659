"""TableRows: many rows at once of a Hugging Face dataset, as its `__getitems__` gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

__all__ = ("TableRows", "rows_getter")


class TableRows:
    """Gets rows as dicts of Python's objects: neighbours as a slice, others put together in one table before.

    `__getitems__` makes objects of a table with a piece for each row, which takes three to six times as long.
    """

    __slots__ = ("formatter", "source", "tables")

    def __init__(self, source: Any) -> None:
        self.source = source
        self.tables = source.with_format("arrow")
        self.formatter = import_module("datasets.formatting").get_formatter(None, features=source.features)

    def __reduce__(self) -> Any:
        return TableRows, (self.source,)

    def __call__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        first, count = indices[0], len(indices)
        if list(indices) == [*range(first, first + count)]:
            columns = self.source[first : first + count]
        else:
            columns = self.formatter.format_batch(self.tables[list(indices)].combine_chunks())
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def rows_getter(source: Any) -> Callable[[Sequence[int]], Any] | None:
    """Return what gets many elements of a source at once, by the method that it has for this; `None` if it has none."""
    found = getattr(source, "get_batch", None) or getattr(source, "__getitems__", None)
    if found is None or (type(source).__module__, type(source).__name__) != ("datasets.arrow_dataset", "Dataset"):
        return found
    plain: dict[str, Any] = {
        "type": None,
        "format_kwargs": {},
        "columns": source.column_names,
        "output_all_columns": False,
    }
    return TableRows(source) if source.column_names and source.format == plain else found
