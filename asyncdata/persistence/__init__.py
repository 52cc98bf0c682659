"""Elements on disk: caches and saved datasets."""

from __future__ import annotations

__all__ = ()
