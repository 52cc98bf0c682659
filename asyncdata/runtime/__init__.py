"""The parts of a running pipeline: blocks, tickets, queues, memory budgets, signals, and the host's resources."""

from __future__ import annotations

__all__ = ()
