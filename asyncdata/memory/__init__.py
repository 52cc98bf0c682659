"""Memory for large arrays: buffers that are used again, copies by two threads, arrays that functions fill."""

from __future__ import annotations

__all__ = ()
