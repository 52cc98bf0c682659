"""Elements on disk: caches and saved datasets.

A writer's state belongs to the thread that writes, one at a time. Sizes are in bytes.
"""

from __future__ import annotations

__all__ = ()
