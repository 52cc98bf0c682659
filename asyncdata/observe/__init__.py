"""Seeing what a running pipeline does: statistics, bottleneck, progress, traces."""

from __future__ import annotations

__all__ = ()
