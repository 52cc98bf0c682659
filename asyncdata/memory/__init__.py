"""Memory for large arrays: reused buffers, copies by two threads, arrays that functions fill."""

from __future__ import annotations

__all__ = ()
