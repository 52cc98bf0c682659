"""Where a pipeline runs: on the current event loop, in a thread, without a loop, in a process of its own."""

from __future__ import annotations

__all__ = ()
