"""Elements: structure, shapes and dtypes, columns, ragged rows, tensors."""

from __future__ import annotations

__all__ = ()
