"""Columns: the tickets of several elements as arrays, one for each part of a tuple."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, cast

import numpy as np

__all__ = ("MOST_LISTED", "Columns", "at_places", "check_listed", "joined_columns", "leaves_in")

MOST_LISTED: Final = 1 << 26
"""The most tickets that a state lists, or packs together: more would not be read again."""

Columns: TypeAlias = Any
"""An array of integers; or a dict of these, for the parts of tuples. `None` where tickets are not known so."""


def check_listed(count: Any) -> None:
    """Raise `ValueError` unless so many tickets may be listed: no more memory is taken for a damaged state."""
    if type(count) is not int or not 0 <= count <= MOST_LISTED:
        raise ValueError(f"{count!r:.80} tickets")


def at_places(columns: Columns, places: Any) -> Columns:
    """Return the rows at some places of columns."""
    if not isinstance(columns, dict):
        return columns[places]
    return {name: at_places(part, places) for name, part in cast("dict[str, Any]", columns).items()}


def joined_columns(parts: Sequence[Columns]) -> Columns:
    """Return the columns of all parts, one after the other; `None` if some are not known, or are of other shapes."""
    if not parts or any(part is None for part in parts):
        return None
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    if not isinstance(first, dict):
        return None if any(isinstance(part, dict) for part in parts) else np.concatenate(parts)
    names = cast("dict[str, Any]", first)
    if any(not isinstance(part, dict) or part.keys() != names.keys() for part in parts):
        return None
    found = {name: joined_columns([part[name] for part in parts]) for name in names}
    return None if any(one is None for one in found.values()) else found


def leaves_in(columns: Columns) -> list[Any]:
    """Return the arrays in columns, those of the first parts of tuples first."""
    if not isinstance(columns, dict):
        return [columns]
    return [leaf for part in cast("dict[str, Any]", columns).values() for leaf in leaves_in(part)]
