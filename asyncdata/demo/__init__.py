"""The main job on real input: train a small classifier on photographs from TFRecord shards, fast and naively."""

from __future__ import annotations

__all__ = ()
