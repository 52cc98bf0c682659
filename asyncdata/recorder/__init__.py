"""The recorder: where elements came from, which were delivered in which step, and the same elements once more."""

from __future__ import annotations

__all__ = ()
