"""Elements in the frames of a TFRecord file, as many at once as are of one layout or small."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any, Final

from asyncdata.elements.columns import ColumnBatch
from asyncdata.elements.structure import leaves_of
from asyncdata.formats.element_codec import encode_element
from asyncdata.formats.element_vectorized import UniformElements, encode_uniform
from asyncdata.formats.tfrecord import FRAMING, frames, frames_of_one_length
from asyncdata.runtime.block import Block

__all__ = ("GROUP_BYTES", "framed", "size_in_arrays")

GROUP_BYTES: Final = 1 << 20
"""Elements are written in groups of about so many bytes: more would leave the processor's caches."""


def framed(
    blocks: Iterable[Block], group_size: Callable[[], int] = lambda: GROUP_BYTES
) -> Iterator[tuple[int, bytes | memoryview]]:
    """Yield the elements of blocks in frames, and how many they are, in groups.

    A group ends with the element that reaches its size in bytes, `group_size`.
    """
    for in_columns, some in groupby(blocks, lambda block: bool(block.columns)):
        if in_columns:
            for part in gathered([*chain.from_iterable([block.columns for block in some])]):
                alike = encode_uniform(part)
                yield from one_by_one(part, group_size) if alike is None else at_once(alike, len(part), group_size)
        else:
            yield from one_by_one(chain.from_iterable([block.items for block in some]), group_size)


def size_in_arrays(block: Block) -> int | None:
    """Return the size in bytes of elements in arrays of numbers; `None` for others, which may have any size."""
    for part in block.columns:
        if not part.integers and any(leaf.dtype.hasobject for leaf in leaves_of(part.value)):
            return None
    return sum([len(part) * part.weight for part in block.columns]) if block.columns else None


def gathered(parts: Sequence[ColumnBatch]) -> Sequence[ColumnBatch]:
    """Return parts that follow each other, if they are many and small, as one that has the same elements."""
    if not all(part.complete for part in parts):  # the user's code may have changed elements
        return parts
    kinds = {part.integers for part in parts}
    if kinds == {True}:
        return [ColumnBatch.ints([*chain.from_iterable(parts)])] if len(parts) > 1 else parts
    return parts if True in kinds else ColumnBatch.gathered(parts)  # which makes Python's integers NumPy's


def at_once(
    alike: UniformElements, count: int, group_size: Callable[[], int]
) -> Iterator[tuple[int, bytes | memoryview]]:
    """Yield elements of one layout."""
    start, width = 0, alike.width + FRAMING
    while start < count:
        begin, rows = start, min(count - start, max(1, -(-group_size() // width)))
        yield rows, frames_of_one_length(rows, alike.width, lambda out, begin=begin: alike.fill(out, begin))
        start += rows


def one_by_one(elements: Iterable[Any], group_size: Callable[[], int]) -> Iterator[tuple[int, bytes | memoryview]]:
    """Yield elements that differ."""
    records: list[bytes] = []
    left = group_size()
    for element in elements:
        records.append(encode_element(element))
        left -= len(records[-1]) + FRAMING
        if left <= 0:
            yield len(records), frames(records)
            records = []
            left = group_size()
    if records:
        yield len(records), frames(records)
