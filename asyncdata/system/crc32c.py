"""CRC32C, the checksum of TFRecord files and of cached objects."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from asyncdata.system import forks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ("checksum", "crc32c")

PIECE: Final = 1 << 20
"""The library can continue a checksum only with `bytes`, so other buffers are copied in pieces of this size."""


@cache
def library() -> Any:
    """Return the library for CRC32C.

    It is imported when it is needed, as the import can enable the lock of a free-threaded interpreter for good.
    """
    with forks.IMPORTING:
        import google_crc32c

    return google_crc32c


@cache
def checksum() -> Callable[[bytes | NDArray[np.uint8]], int]:
    """Return the function that computes the CRC32C of bytes."""
    return library().value


def crc32c(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """Return the CRC32C of `data` after bytes with the CRC32C `before`.

    >>> hex(crc32c(b"6789", crc32c(b"12345")))
    '0xe3069283'
    """
    view, crc = memoryview(data), before
    for start in range(0, len(view), PIECE):
        crc: int = library().extend(crc, bytes(view[start : start + PIECE]))
    return crc
