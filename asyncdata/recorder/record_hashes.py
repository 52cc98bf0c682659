"""Hashes of records: 64 bits each, of all members of many batches at once where their tickets are in columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from asyncdata.runtime.columns import Columns

__all__ = ("Hashes", "hashes_of_columns", "hashes_of_leaves")

Hashes = npt.NDArray[np.uint64]

FIRST: Final = np.uint64(0x9E3779B97F4A7C15)


def mixed(before: Hashes | np.uint64, values: npt.NDArray[np.int64]) -> Hashes:
    """Return hashes that go on with one more number each."""
    with np.errstate(over="ignore"):
        found = (before ^ values.view(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
        found ^= found >> np.uint64(31)
        found *= np.uint64(0x94D049BB133111EB)
        found ^= found >> np.uint64(29)
    return found


def hashes_of_columns(columns: Columns, before: Hashes | np.uint64 = FIRST) -> Hashes:
    """Return the hash of each record: as `hashes_of_leaves` does for the same tickets."""
    if not isinstance(columns, dict):
        return mixed(before, columns)
    *outer, last = cast("dict[str, Any]", columns).values()
    for part in outer:
        before = mixed(before, numbers_of(part))
    return hashes_of_columns(last, before)


def numbers_of(columns: Columns) -> npt.NDArray[np.int64]:
    """Return a number for each integer or tuple, as `number_of` does."""
    if not isinstance(columns, dict):
        return columns
    found: Hashes | np.uint64 = FIRST
    for part in cast("dict[str, Any]", columns).values():
        found = mixed(found, numbers_of(part))
    return cast("Hashes", found).view(np.int64)


def hashes_of_leaves(leaves: Sequence[tuple[Any, ...]]) -> Hashes:
    """Return the hash of each record, which are tuples as `leaves_of` yields them."""
    found = [np.empty(0, np.uint64)]
    for _, some in groupby(leaves, len):
        hashes: Hashes | np.uint64 = FIRST
        for part in zip(*some, strict=True):
            hashes = mixed(hashes, np.array([*map(number_of, part)], np.int64))
        found.append(cast("Hashes", hashes))
    return np.concatenate(found)


def number_of(part: Any) -> int:
    """Return a number for a part of a record's name: an integer of 64 bits itself."""
    if isinstance(part, tuple):
        return int(hashes_of_leaves([cast("tuple[Any, ...]", part)]).view(np.int64)[0])
    return part if type(part) is int and -(1 << 63) <= part < 1 << 63 else hash(part)
