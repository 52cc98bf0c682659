"""What is counted while a pipeline runs, and which resource is the limit."""

from __future__ import annotations

__all__ = ()
