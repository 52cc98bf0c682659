"""What becomes of a plan before it runs: rewrite rules, and which steps a cluster runs."""

from __future__ import annotations

__all__ = ()
