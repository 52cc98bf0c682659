"""What exists while elements flow: blocks, tickets, queues, budgets, signals, and what the host allows."""

from __future__ import annotations

__all__ = ()
