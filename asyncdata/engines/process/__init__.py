"""A pipeline next to its consumer: the whole of it in a process of its own, its elements in shared memory."""

from __future__ import annotations

__all__ = ()
