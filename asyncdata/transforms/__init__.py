"""What happens to elements: a node, and a step if it remembers something, one file each."""

from __future__ import annotations

__all__ = ()
