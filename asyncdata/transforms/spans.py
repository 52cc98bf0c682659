"""Spans: the rows of batches that are only cut anew, not taken apart one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple, cast, final

import numpy as np
import numpy.typing as npt

from asyncdata.runtime.block import Block
from asyncdata.runtime.tickets import Joined
from asyncdata.structure import leading, map_leaves, open_level, slice_rows, stack, unstack

__all__ = ("Spans", "joined", "spans_of", "stacked")


class Span(NamedTuple):
    """Rows `start` to `stop` of a structure of arrays."""

    value: Any
    start: int
    stop: int


@final
class Spans(Sequence[Any]):
    """Rows that follow each other, as a block holds them; they are taken apart where somebody looks at each."""

    __slots__ = ("parts", "stops")

    def __init__(self, parts: Sequence[Span]) -> None:
        self.parts = parts
        self.stops = list(accumulate([stop - start for _, start, stop in parts]))

    def __len__(self) -> int:
        return self.stops[-1]

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(slice_rows(*part) for part in self.parts)

    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, slice):
            return list(self)[place]
        first, last, _ = place.indices(len(self))
        if len(self.parts) == 1 and first < last:
            value, start, _ = self.parts[0]
            return Spans((Span(value, start + first, start + last),))
        cut: list[Span] = []
        for part, stop in zip(self.parts, self.stops, strict=True):
            begin = stop - (part.stop - part.start)
            if begin < last and stop > first:
                start, end = max(first - begin, 0), min(last - begin, stop - begin)
                cut.append(Span(part.value, part.start + start, part.start + end))
        return Spans(cut) if cut else list[Any]()


def stacked(items: Any) -> Any:
    """Return what `stack` makes of these, which may be `Spans`."""
    if not isinstance(items, Spans):
        return stack(items)
    found = concatenated(items.parts)
    return stack(list(items)) if found is None else found


def concatenated(parts: Sequence[Span]) -> Any:
    """Return rows of structures of the same arrays as one structure; `None` if they differ."""
    first = parts[0].value
    if isinstance(first, np.ndarray):
        if len(parts) == 1:
            return cast("npt.NDArray[Any]", first[parts[0].start : parts[0].stop].copy())
        arrays = [cast("npt.NDArray[Any]", part.value) for part in parts]
        dtype, shape = arrays[0].dtype, arrays[0].shape[1:]
        for array in arrays[1:]:
            if type(array) is not np.ndarray or array.dtype != dtype or array.shape[1:] != shape:
                return None
        return np.concatenate([array[part.start : part.stop] for array, part in zip(arrays, parts, strict=True)])
    levels = [open_level(part.value) for part in parts]
    whole = levels[0]
    if whole is None or any(level is None or level.names != whole.names for level in levels):
        return None
    if any(type(part.value) is not type(first) for part in parts):
        return None
    columns = zip(*[level.parts for level in levels if level is not None], strict=True)
    found = [concatenated([part._replace(value=leaf) for part, leaf in zip(parts, c, strict=True)]) for c in columns]
    return None if any(one is None for one in found) else whole.rebuild(found)


def spans_of(value: Any) -> list[Any]:
    """Return the rows of an element, not taken apart if its leaves are arrays of numbers; `StructureError` if none."""
    if is_plain(value) and len(value):
        return cast("list[Any]", Spans((Span(value, 0, len(value)),)))
    rows, problem = leading(value)
    leaves: list[Any] = []
    map_leaves(lambda leaf, _: leaves.append(leaf), value)
    if problem is not None or not rows or not all(map(is_plain, leaves)):
        return unstack(value)
    return cast("list[Any]", Spans((Span(value, 0, rows),)))


def is_plain(leaf: Any) -> bool:
    """Tell whether rows of an array, stacked, are always a part of such an array."""
    return type(leaf) is np.ndarray and leaf.ndim > 0 and leaf.dtype.kind in "biufc" and leaf.dtype.isnative


def joined(blocks: Sequence[Block]) -> Block:
    """Return the items of all `blocks`, in order, as one block; none of which failed."""
    if len(blocks) == 1 or any(block.columns for block in blocks):
        return Block.join(blocks)
    found: list[Any] = [block.items for block in blocks]
    if not all(isinstance(items, Spans) for items in found):
        return Block.join(blocks)
    whole = Spans(list(chain.from_iterable(items.parts for items in found)))
    return Block(cast("list[Any]", whole), Joined.of([block.tickets for block in blocks]))
