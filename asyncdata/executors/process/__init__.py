"""Worker processes: the standard pool, functions that travel, and results that arrive in shared memory."""

from __future__ import annotations

__all__ = ()
