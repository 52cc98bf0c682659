"""The demonstration: train a small classifier on photographs from TFRecord shards, with a fast and a naive pipeline.

The classifier belongs to the thread that trains it.
"""

from __future__ import annotations

__all__ = ()
