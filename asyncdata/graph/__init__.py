"""The tree of nodes of a dataset: nodes and their properties, stages, rewrite rules, hashes."""

from __future__ import annotations

__all__ = ()
