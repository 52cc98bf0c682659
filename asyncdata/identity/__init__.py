"""What makes two pipelines the same: hashes of functions and data, labels, and whether a position fits a plan."""

from __future__ import annotations

__all__ = ()
