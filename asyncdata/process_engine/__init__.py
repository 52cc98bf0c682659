"""A pipeline that runs entirely in a process of its own, with its elements in shared memory."""

from __future__ import annotations

__all__ = ()
