"""Records of CSV files as rows without loss: a column has numbers if all of its fields are numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from asyncdata.cli.recognised import named
from asyncdata.dataset import Dataset
from asyncdata.readers.make_csv_dataset import make_csv_dataset

__all__ = ("csv_rows",)

INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*")
"""Integers that are written as Python writes them: 007 is not one, as it would lose its zeros."""

FLOAT: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")

LARGEST: Final = 1 << 63

BATCH: Final = 1024


def csv_rows(paths: Sequence[str], columns: int, storage: Mapping[str, str] | None = None) -> Dataset[dict[str, Any]]:
    """Return the records as dicts of `int`, `float` or `str`; a missing number is `None`. All records are read once."""
    defaults = [""] * columns
    batches = make_csv_dataset(
        [*map(named, paths)], BATCH, column_defaults=defaults, num_epochs=1, shuffle=False, storage_options=storage
    )
    texts = batches.unbatch().map(decoded)
    kinds: dict[str, str] = {}
    for row in texts:
        kinds = {name: kind_with(kinds.get(name, ""), field) for name, field in row.items()}
    return texts.map(partial(typed, kinds))


def decoded(record: Mapping[str, bytes]) -> dict[str, str]:
    """Return the fields as text."""
    return {name: field.decode() for name, field in record.items()}


def kind_with(kind: str, field: str) -> str:
    """Return the kind of a column that also has this field: "int", "float" or "str", "" if no field is known yet."""
    if not field or kind == "str":
        return kind
    if INTEGER.fullmatch(field):
        return (kind or "int") if -LARGEST <= int(field) < LARGEST else "str"
    return "float" if FLOAT.fullmatch(field) else "str"


def typed(kinds: Mapping[str, str], row: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields as values of their columns' kinds."""
    return {name: value_of(kinds[name], field) for name, field in row.items()}


def value_of(kind: str, field: str) -> Any:
    if kind not in ("int", "float"):
        return field
    number = int if kind == "int" else float
    return number(field) if field else None
