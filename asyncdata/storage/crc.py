"""The CRC32C of bytes that come in pieces."""

from __future__ import annotations

from typing import Any, Final

from asyncdata.runtime import forks
from asyncdata.storage.base import Buffer

__all__ = ("crc32c",)

PIECE: Final = 1 << 20
"""The library takes `bytes` alone, so what is none is copied, so much at once."""


def crc32c(data: Buffer, before: int = 0) -> int:
    """Return the CRC32C of what has the CRC32C `before`, and then `data`.

    >>> hex(crc32c(b"6789", crc32c(b"12345")))
    '0xe3069283'
    """
    with forks.IMPORTING:
        import google_crc32c

    library: Any = google_crc32c
    view, crc = memoryview(data), before
    for start in range(0, len(view), PIECE):
        crc: int = library.extend(crc, bytes(view[start : start + PIECE]))
    return crc
