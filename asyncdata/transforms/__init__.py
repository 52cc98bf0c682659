"""Transformations: one file each, with a node, and a step if it has state.

A step belongs to one run, and its state to the engine's thread, unless a class says otherwise.
"""

from __future__ import annotations

__all__ = ()
