"""The orders in a log, read again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from asyncdata.runtime.orders import MOST_PLACES, Order
from asyncdata.runtime.position_codec import unpack_columns
from asyncdata.transforms.global_shuffle import Permutation
from asyncdata.transforms.shuffle import BufferOrder, DrainOrder

__all__ = ("order_of",)

MOST_HELD: Final = 1 << 28
"""The most elements of a shuffle buffer."""


def order_of(described: Mapping[str, Any]) -> Order:
    """Return an order; `ValueError` or another error for what is none."""
    (kind, numbers), *_ = described.items()
    turns = tuple(described.get("turns", ()))
    if {*map(type, (*numbers, *turns))} != {int} or min(numbers) < 0 or max(numbers[1:]) >= 1 << 63:
        raise ValueError("no order")
    match kind, numbers:
        case "shuffle", [key, size]:
            return Permutation(key, size, begins_of(size, described.get("files")), turns=turns)
        case "buffer", [key, held] if 0 < held <= MOST_HELD:
            return BufferOrder(key, MOST_PLACES, held, turns=turns)
        case "drained", [key, held, seen] if held > 0 and min(held, seen) <= MOST_HELD:
            return DrainOrder(key, min(held, seen), held, seen, turns=turns)
        case _:
            raise ValueError("no order")


def begins_of(size: int, files: Mapping[str, Any] | None) -> tuple[int, ...]:
    """Return the number of each file's first element, and at the end that of all; the first `size` are shuffled."""
    if files is None:
        return ()
    counts = unpack_columns({**files})
    if (counts < 0).any() or counts.sum() < size:
        raise ValueError("files of other sizes")
    return (0, *np.cumsum(counts).tolist())
