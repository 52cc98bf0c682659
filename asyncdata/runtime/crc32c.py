"""The CRC32C of bytes, which TFRecord files and kept objects have."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from asyncdata.runtime import forks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ("checksum", "crc32c")

PIECE: Final = 1 << 20
"""The library resumes with `bytes` alone, so what is none is copied, so much at once."""


@cache
def library() -> Any:
    """Return what makes a CRC32C.

    It is imported when it is needed: on a free-threaded interpreter it can bring the lock back for good.
    """
    with forks.IMPORTING:
        import google_crc32c

    return google_crc32c


@cache
def checksum() -> Callable[[bytes | NDArray[np.uint8]], int]:
    """Return the function that makes the CRC32C of some bytes."""
    return library().value


def crc32c(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """Return the CRC32C of what has the CRC32C `before`, and then `data`.

    >>> hex(crc32c(b"6789", crc32c(b"12345")))
    '0xe3069283'
    """
    view, crc = memoryview(data), before
    for start in range(0, len(view), PIECE):
        crc: int = library().extend(crc, bytes(view[start : start + PIECE]))
    return crc
