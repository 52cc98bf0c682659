"""The plain encodings of a tf.Example's features, read without building a protobuf message for each.

A feature is a list of one kind around its values: tag, size, tag, size, values. So every writer leaves a single value
and a packed list of floats. What is written otherwise gives `None`, and is for the protobuf library to judge.

>>> single_int(b"\\x1a\\x03\\n\\x01\\x2a"), single_bytes(b"\\n\\x05\\n\\x03ada")
(42, b'ada')
>>> packed_floats(b"\\x12\\x06\\n\\x04\\x00\\x00\\x80?")
array([1.], dtype=float32)
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ("packed_floats", "single_bytes", "single_float", "single_int")

unpack_float = struct.Struct("<f").unpack_from
LITTLE_FLOATS: Final = np.dtype("<f4")

VALUES: Final = 0x0A
"""The tag of the values in each of the lists."""

SHORT: Final = 125
"""How many bytes of values a feature may have for its sizes to take one byte each."""


def heads(kind: int) -> dict[int, bytes]:
    """Return what stands before so many bytes of values in a list of `kind`, a tag."""
    return {size: bytes((kind, size + 2, VALUES, size)) for size in range(1, SHORT + 1)}


BYTES: Final = heads(0x0A)
FLOATS: Final = heads(0x12)
INTS: Final = heads(0x1A)


def single_int(feature: bytes) -> int | None:
    """Return the value of a feature that holds one integer, 0 or above."""
    size = len(feature) - 4
    if feature[:4] != INTS.get(size) or size > 9 or feature[-1] > 127:  # a negative one takes ten bytes
        return None
    value, end = varint(feature, 4)
    return value if end == len(feature) else None


def single_bytes(feature: bytes) -> bytes | None:
    """Return the value of a feature that holds one bytes object."""
    start = values_at(feature, BYTES)
    return feature[start:] if start else None


def single_float(feature: bytes) -> float | None:
    """Return the value of a feature that holds one float."""
    return unpack_float(feature, 4)[0] if len(feature) == 8 and feature[:4] == FLOATS[4] else None


def packed_floats(feature: bytes) -> NDArray[np.float32] | None:
    """Return the values of a feature that holds floats, as a new array."""
    start = values_at(feature, FLOATS)
    if not start or (len(feature) - start) % 4:
        return None
    return np.frombuffer(bytearray(feature[start:]), LITTLE_FLOATS)


def values_at(feature: bytes, kind: dict[int, bytes]) -> int:
    """Return where the values begin in a feature that is one list of `kind` with one run of values; 0 in any other."""
    size = len(feature) - 4
    if size <= SHORT:
        return 4 if feature[:4] == kind.get(size) else 0
    try:
        inner, at = varint(feature, 1)
        if feature[0] != kind[1][0] or at + inner != len(feature) or feature[at] != VALUES:
            return 0
        size, at = varint(feature, at + 1)
    except IndexError:
        return 0
    return at if at + size == len(feature) else 0


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at `at`, and where it ends."""
    value = shift = 0
    while (byte := data[at]) > 127:
        value |= (byte & 127) << shift
        shift += 7
        at += 1
    return value | byte << shift, at + 1
