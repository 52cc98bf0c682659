"""Encodings of records, a file for each format, and compressions: bytes to records and back, without I/O."""

from __future__ import annotations

__all__ = ()
