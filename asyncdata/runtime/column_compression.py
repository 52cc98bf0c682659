"""Compression of tickets: those of many elements as the differences from those before them, deflated; or as text.

The elements of an interleave come from each file in turn, and those of each file follow each other. So a number is
written as the difference from that of the last element that has the same numbers before it in its tuple: mostly one.
In the pairs of a zip no two elements have the same number before: these are written as differences from the element
before (`flat`), where that takes less.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from asyncdata.runtime.columns import Columns, leaves_in

__all__ = ("compressed", "compressed_text", "decompressed", "decompressed_text")

FEWEST: Final = 256
"""Fewer tickets are not compressed."""

SAMPLE: Final = 2048
"""So many are compressed to see whether it is worth it."""

WORTH: Final = 2
"""By which factor it must be smaller than the bits of the numbers."""

WIDTHS: Final = (1, 2, 4, 8)

Numbers = npt.NDArray[np.int64]


def compressed(columns: Columns, count: int) -> dict[str, Any] | None:
    """Return so many tickets as JSON; `None` if they are few, or if their order is too irregular to be worth it."""
    leaves = leaves_in(columns)
    plain_bits = sum((int(leaf.max()) - int(leaf.min())).bit_length() for leaf in leaves) if count >= FEWEST else 0
    if not plain_bits:
        return None
    pieces, flat = list[Any](), list[int]()
    for place, leaf in enumerate(leaves):
        piece = narrowest(differences(leaf, leaves[:place]))
        other = narrowest(differences(leaf, []))
        if place and len(deflated([other[:SAMPLE]])) < len(deflated([piece[:SAMPLE]])):
            flat.append(place)
            piece = other
        pieces.append(piece)
    some = min(count, SAMPLE)
    if len(deflated([piece[:some] for piece in pieces])) * 8 * WORTH > plain_bits * some:
        return None
    text = b64encode(deflated(pieces)).rstrip(b"=").decode()
    widths = shaped(columns, iter([piece.itemsize for piece in pieces]))
    return {"packed": count, "widths": widths, **({"flat": flat} if flat else {}), "deflated": text}


def decompressed(found: dict[str, Any]) -> Columns:
    """Return the tickets that were compressed; `ValueError` or another error if they are damaged."""
    count, widths, text = found["packed"], list[int](leaves_in(found["widths"])), found["deflated"]
    if not widths or {*widths} - {*WIDTHS} or type(count) is not int or count < 0:
        raise ValueError(f"numbers of {widths} bytes")
    size, reader = count * sum(widths), zlib.decompressobj()
    try:
        data = reader.decompress(b64decode(text + "=" * (-len(text) % 4)), size + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(data) != size:
        raise ValueError(f"{len(data)} bytes of {size}")
    leaves, begin, flat = list[Numbers](), 0, {*found.get("flat", ())}
    for place, width in enumerate(widths):
        end, before = begin + count * width, [] if place in flat else leaves
        leaves.append(summed(np.frombuffer(data[begin:end], f"<i{width}").astype(np.int64), before))
        begin = end
    return shaped(found["widths"], iter(leaves))


def compressed_text(text: str) -> str:
    """Return text deflated, in base 64."""
    return b64encode(zlib.compress(text.encode(), 1)).rstrip(b"=").decode()


def decompressed_text(found: str, most: int) -> bytes:
    """Return text that was compressed; `ValueError` if it is damaged, or has more bytes than `most`."""
    reader = zlib.decompressobj()
    try:
        data = reader.decompress(b64decode(found + "=" * (-len(found) % 4)), most)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not reader.eof:
        raise ValueError("it is cut off, or too long")
    return data


def deflated(pieces: Sequence[Any]) -> bytes:
    return zlib.compress(b"".join([piece.tobytes() for piece in pieces]))


def narrowest(values: Numbers) -> Any:
    """Return numbers as signed integers of as few bytes as can be these."""
    least, most = int(values.min()), int(values.max())
    width = next(size for size in WIDTHS if -(1 << (8 * size - 1)) <= least and most < 1 << (8 * size - 1))
    return values.astype(f"<i{width}")


def shaped(template: Columns, leaves: Iterator[Any]) -> Any:
    """Return leaves in the shape of some columns; `ValueError` for a tuple without parts."""
    if not isinstance(template, dict):
        return next(leaves)
    if not template:
        raise ValueError("columns of nothing")
    return {name: shaped(part, leaves) for name, part in cast("dict[str, Any]", template).items()}


def differences(values: Numbers, before: Sequence[Numbers]) -> Numbers:
    """Return each number's difference from the last one that has the same numbers in the columns before."""
    order, firsts = grouped(before, len(values))
    found = values[order]
    steps = np.diff(found, prepend=np.int64(0))
    steps[firsts] = found[firsts]
    result = np.empty_like(steps)
    result[order] = steps
    return result


def summed(steps: Numbers, before: Sequence[Numbers]) -> Numbers:
    """Return the numbers of which these are the differences."""
    order, firsts = grouped(before, len(steps))
    found = np.cumsum(steps[order])
    bases = np.concatenate([np.zeros(1, np.int64), found])[firsts]
    found -= np.repeat(bases, np.diff(np.append(firsts, len(found))))
    result = np.empty_like(found)
    result[order] = found
    return result


def grouped(before: Sequence[Numbers], count: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the places of elements with the same numbers in some columns together, and where such groups begin."""
    order = np.arange(count)
    for column in reversed(before):
        order = order[np.argsort(narrowed(column)[order], kind="stable")]
    new = np.zeros(count, bool)
    new[:1] = True
    for column in before:
        new[1:] |= np.diff(column[order]) != 0
    return order, np.flatnonzero(new)


def narrowed(values: Numbers) -> npt.NDArray[Any]:
    """Return numbers in the same order that are sorted by their digits, in a fifth of the time, if they are small."""
    least = int(values.min(initial=0))
    return (values - least).astype(np.uint16) if int(values.max(initial=0)) - least < 1 << 16 else values
