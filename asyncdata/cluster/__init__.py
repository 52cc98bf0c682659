"""The same pipeline on a Ray cluster: actors make the calls of its parallel steps."""

from __future__ import annotations

__all__ = ()
