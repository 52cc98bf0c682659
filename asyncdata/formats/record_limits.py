"""The limit on the size of one record, and the error for a record that exceeds it."""

from __future__ import annotations

from typing import Final

from asyncdata.errors import DataLossError

__all__ = ("CACHED_RECORD_BYTES", "MAX_RECORD_BYTES", "offset_in", "record_too_long")

MAX_RECORD_BYTES: Final = 1 << 28
"""The default of `max_record_bytes` for files from other programs."""

CACHED_RECORD_BYTES: Final = 1 << 32
"""The default of `max_record_bytes` of `load`, `cache` and `snapshot`, whose records may be complete batches."""


def offset_in(compressed: bool) -> str:
    """Return the name of a byte offset in messages."""
    return "uncompressed byte" if compressed else "byte"


def record_too_long(name: str, what: str, most: int, argument: str = "max_record_bytes") -> DataLossError:
    """Return the error for a record that is longer than `most` bytes; `what` names the record in the file `name`."""
    return DataLossError(
        f"{name}: {what} is longer than {argument}={most}, and the rest of the file is not read; if such records "
        f"are expected, give a larger {argument}"
    )
