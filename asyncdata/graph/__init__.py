"""The tree of nodes that a dataset is: what a node says of itself, the stages, the rewrite rules, hashes."""

from __future__ import annotations

__all__ = ()
