"""The encodings of MDS columns: how the bytes of a value are decoded."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, Final, TypeAlias

import numpy as np

__all__ = ("DAMAGED", "Decode", "decoder_for")

Decode: TypeAlias = Callable[[memoryview], Any]
"""Decodes a value from its bytes in a larger buffer, which is used again: nothing in the value may refer to it."""

DAMAGED: Final = (ValueError, ArithmeticError, LookupError, struct.error, RecursionError, MemoryError)
"""What decoding raises for bytes that are no value of the encoding."""

DTYPES: Final = {
    8: "uint8",
    9: "int8",
    16: "uint16",
    17: "int16",
    18: "float16",
    32: "uint32",
    33: "int32",
    34: "float32",
    64: "uint64",
    65: "int64",
    66: "float64",
}
"""The dtypes of arrays by the number that stands for them."""

SCALARS: Final = {name: np.dtype(name).newbyteorder("<") for name in DTYPES.values()}


def text_of(data: memoryview) -> str:
    return str(data, "utf-8")


def scalar_of(dtype: np.dtype[Any], data: memoryview) -> Any:
    return np.frombuffer(data, dtype)[0]


def images_of(begin: int, data: memoryview) -> list[bytes]:
    """Return the encoded images of a list: from `begin` on their number, their sizes, then each of them."""
    (count,) = struct.unpack_from("<I", data, begin)
    if count > len(data) // 4:
        raise ValueError(f"{count} images in {len(data)} bytes")
    sizes = struct.unpack_from(f"<{count}I", data, begin + 4)
    ends = [*accumulate(sizes, initial=begin + 4 + 4 * count)]
    if ends[-1] != len(data):
        raise ValueError(f"images of {ends[-1]} bytes in {len(data)} bytes")
    return [bytes(data[begin:end]) for begin, end in pairwise(ends)]


def unpickled(data: memoryview) -> Any:
    """Return a pickled value, which the user has allowed."""
    try:
        return pickle.loads(data)
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def array_of(dtype: np.dtype[Any] | None, shape: tuple[int, ...] | None, data: memoryview) -> Any:
    """Return an array that may be changed. Its dtype and shape come first, unless the column has one."""
    at = 0
    if dtype is None:
        dtype, at = SCALARS[DTYPES[data[0]]], 1
    if shape is None:
        axes, width = data[at] >> 2, 1 << (data[at] & 3)
        begin = at + 1
        at = begin + axes * width
        shape = tuple(np.frombuffer(data[begin:at], f"<u{width}").tolist())
        if len(shape) != axes:
            raise ValueError(f"{axes} axes are expected, got {len(shape)}")
    return np.frombuffer(bytearray(data[at:]), dtype).reshape(shape)


PLAIN: Final[dict[str, tuple[int | None, Decode]]] = {
    **{name: (dtype.itemsize, partial(scalar_of, dtype)) for name, dtype in SCALARS.items()},
    **dict.fromkeys(("bytes", "jpeg", "png", "pil"), (None, bytes)),
    **dict.fromkeys(("jpeg_array", "jpegarray"), (None, partial(images_of, 0))),
    **dict.fromkeys(("list[pil]", "list[jpeg]", "list[png]"), (None, partial(images_of, 4))),
    "int": (8, lambda data: int.from_bytes(data, "little", signed=True)),
    "json": (None, lambda data: json.loads(text_of(data))),
    "str": (None, text_of),
    "str_decimal": (None, lambda data: Decimal(text_of(data))),
    "str_float": (None, lambda data: float(text_of(data))),
    "str_int": (None, lambda data: int(text_of(data))),
}
"""The size in bytes, `None` if it differs, and the decoder of each encoding without arguments."""


def decoder_for(column: str, encoding: str, allow_pickle: bool) -> tuple[int | None, Decode]:
    """Return the size of values of an encoding, `None` if each has its own, and what decodes them.

    `ValueError` for unknown encodings, and for pickles that are not allowed.
    """
    if encoding in PLAIN:
        return PLAIN[encoding]
    kind, _, rest = encoding.partition(":")
    if kind == "ndarray":
        return array_decoder(column, encoding, rest)
    if encoding != "pkl":
        raise ValueError(f"the column {column!r} has the encoding {encoding!r:.40}, which is unknown")
    if not allow_pickle:
        raise ValueError(
            f"the column {column!r} is pickled, which can run any code when it is loaded; "
            "if you trust who wrote it, say allow_pickle=True"
        )
    return None, unpickled


def array_decoder(column: str, encoding: str, arguments: str) -> tuple[int | None, Decode]:
    """Return the size and the decoder of arrays whose dtype and shape may be fixed, as in `ndarray:uint8:2,3`."""
    name, _, axes = arguments.partition(":")
    try:
        dtype = SCALARS[name] if name else None
        shape = tuple(map(int, axes.split(","))) if axes else None
    except LookupError:
        raise ValueError(f"the column {column!r} has the encoding {encoding!r:.40}, whose dtype is unknown") from None
    if shape is not None and min(shape) < 1:
        raise ValueError(f"the column {column!r} has the encoding {encoding!r:.40}, whose shape is impossible")
    size = None
    if dtype is not None and shape is not None:
        size = dtype.itemsize
        for length in shape:
            size *= length
    return size, partial(array_of, dtype, shape)
