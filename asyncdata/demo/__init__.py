"""The demonstration: train a small classifier on photographs from TFRecord shards, with a fast and a naive pipeline."""

from __future__ import annotations

__all__ = ()
