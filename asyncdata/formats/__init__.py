"""Encodings of records, a file for each format, and compressions: bytes to records and back, without I/O.

State belongs to the thread that reads or writes the file, one at a time. Sizes and offsets are in bytes.
"""

from __future__ import annotations

__all__ = ()
