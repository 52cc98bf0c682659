"""The tree of nodes of a dataset: nodes and their properties, the stages that run them, and their workers.

Nodes do not change, and threads share them. State of a run belongs to the engine's thread.
"""

from __future__ import annotations

__all__ = ()
