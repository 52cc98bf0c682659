"""What makes two pipelines the same: hashes of functions and data, labels, and whether a position fits a plan.

State belongs to the thread that asks.
"""

from __future__ import annotations

__all__ = ()
