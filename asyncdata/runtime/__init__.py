"""The parts of a running pipeline: blocks, tickets, queues, the memory budget, open files."""

from __future__ import annotations

__all__ = ()
