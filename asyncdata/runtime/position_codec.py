"""Encoding of positions: many tickets of one shape as a few strings, so that states stay small.

Reasons and measurements: docs/design.md, "Order and resuming".
"""

from __future__ import annotations

from array import array
from base64 import b64decode, b64encode
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from asyncdata.runtime.columns import MOST_LISTED, Columns, check_listed

__all__ = (
    "FEW",
    "columns_of",
    "pack_columns",
    "pack_tickets",
    "rows_of",
    "shape_of",
    "unpack_columns",
    "unpack_tickets",
)

Column: TypeAlias = Any
"""One number for all; or [minimum, bits, offsets from the minimum in base 64]; or a dict of columns."""

AT_ONCE: Final = 4096
"""So many numbers are packed at once, in memory that is near: a multiple of 8, which have whole bytes."""

FEW: Final = 32
"""Fewer tickets than this are listed one by one, which is readable."""


def pack_tickets(tickets: Sequence[Any]) -> dict[str, Any] | None:
    """Return tickets as JSON; `None` if they are few or too many, or not integers or tuples of one shape.

    >>> pack_tickets([(7, n) for n in range(100, 140)])
    {'packed': 40, 'columns': {'0': 7, '1': [100, 6, 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmn']}}
    """
    if not FEW <= len(tickets) <= MOST_LISTED:
        return None
    try:
        return pack_columns(columns_of(tickets), len(tickets))
    except (ValueError, OverflowError):
        return None


def columns_of(values: Sequence[Any]) -> Columns:
    """Return integers, or tuples part by part, as arrays; `ValueError` or `OverflowError` for other tickets."""
    kinds = set(map(type, values))
    if kinds == {int}:
        return np.frombuffer(array("q", values), np.int64)  # in a third of the time of np.array
    if not all(issubclass(kind, tuple) for kind in kinds) or len(set(map(len, values))) != 1:
        raise ValueError("tickets of several shapes")
    flat = [*chain.from_iterable(values)]
    if set(map(type, flat)) == {int}:  # in half the time of column by column
        table = np.frombuffer(array("q", flat), np.int64).reshape(len(values), -1)
        return {str(number): table[:, number].copy() for number in range(table.shape[1])}
    return {str(number): columns_of(part) for number, part in enumerate(zip(*values, strict=False))}


def shape_of(columns: Columns) -> Any:
    """Return what columns that can be joined have in common."""
    if not isinstance(columns, dict):
        return None
    return [shape_of(part) for part in cast("dict[str, Any]", columns).values()]


def rows_of(columns: Columns) -> list[Any]:
    """Return the integers or tuples in columns."""
    if not isinstance(columns, dict):
        return columns.tolist()
    return list(zip(*map(rows_of, cast("dict[str, Any]", columns).values()), strict=True))


def pack_columns(columns: Columns, count: int) -> dict[str, Any]:
    """Return so many tickets, as columns, as JSON."""
    return {"packed": count, "columns": column(columns)}


def column(columns: Columns) -> Column:
    if not isinstance(columns, dict):
        return bits(columns)
    return {name: column(part) for name, part in cast("dict[str, Any]", columns).items()}


def bits(values: npt.NDArray[np.int64]) -> Column:
    """Return numbers in as many bits as the largest needs."""
    least = int(values.min())
    width = (int(values.max()) - least).bit_length()
    if not width:
        return least
    pieces = [values[start : start + AT_ONCE] - least for start in range(0, len(values), AT_ONCE)]
    data = b"".join([low_bits(piece, width) for piece in pieces])
    filled = -(-(len(values) * width + -len(values) * width % 6) // 8)  # bytes whose bits base 64 divides
    return [least, width, b64encode(data[:filled].ljust(filled, b"\0")).rstrip(b"=").decode()]


def low_bits(values: npt.NDArray[np.int64], width: int) -> bytes:
    """Return so many bits of each number, one after the other, and zeros up to a whole number of words."""
    words = np.pad(values, (0, -len(values) % 8)).astype(np.uint64)
    while width % 8 and width <= 32:  # fewer and longer ones take less time
        words = words[::2] << np.uint64(width) | words[1::2]
        width *= 2
    size = -(-width // 8)
    more = words.astype(">u8").view(np.uint8).reshape(len(words), 8)[:, 8 - size :]
    if width == 8 * size:
        return more.tobytes()
    return np.packbits(np.unpackbits(more.ravel()).reshape(len(words), 8 * size)[:, 8 * size - width :]).tobytes()


def unpack_tickets(packed: dict[str, Any]) -> list[Any]:
    """Return the tickets that `pack_tickets` packed."""
    return rows_of(unpack_columns(packed))


def unpack_columns(packed: dict[str, Any]) -> Columns:
    """Return the tickets that were packed, as columns; `ValueError` or another error for what is none."""
    count = packed["packed"]
    check_listed(count)
    return values_of(packed["columns"], count)


def values_of(encoded: Column, count: int) -> Columns:
    if isinstance(encoded, int):
        return np.full(count, encoded, np.int64)
    if isinstance(encoded, dict) and encoded:
        return {name: values_of(part, count) for name, part in cast("dict[str, Any]", encoded).items()}
    least, width, text = cast("tuple[int, int, str]", encoded)
    if (type(least), type(width)) != (int, int) or not 0 < width <= 64:
        raise ValueError(f"{width!r:.80} bits from {least!r:.80} on")
    data = np.frombuffer(b64decode(text + "=" * (-len(text) % 4)), np.uint8)
    each = np.unpackbits(data)[: count * width].reshape(count, width)
    words = np.packbits(np.pad(each, ((0, 0), (64 - width, 0))).ravel()).view(">u8")
    return words.astype(np.int64) + least
