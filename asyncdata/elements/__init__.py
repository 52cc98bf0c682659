"""Elements: structure, shapes and dtypes, columns, ragged rows, tensors.

Values belong to one thread at a time. Forms of rows that are made when they are needed are the same in all threads.
"""

from __future__ import annotations

__all__ = ()
