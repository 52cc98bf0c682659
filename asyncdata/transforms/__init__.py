"""Transformations: one file each, with a node, and a step if it has state."""

from __future__ import annotations

__all__ = ()
