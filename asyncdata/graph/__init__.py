"""The tree of nodes of a dataset: nodes and their properties, the stages that run them, and their workers."""

from __future__ import annotations

__all__ = ()
