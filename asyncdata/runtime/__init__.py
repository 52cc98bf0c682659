"""All that exists only while elements flow: blocks, queues, executors, stages, the engine and its bridge."""

from __future__ import annotations

__all__ = ()
