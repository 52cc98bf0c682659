"""Encodings of records, without I/O: TFRecord framing and compression, and tf.Example."""

from __future__ import annotations

__all__ = ()
