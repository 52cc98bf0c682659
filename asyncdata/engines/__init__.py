"""Where a pipeline runs: on the current event loop, in a thread, without a loop. Times are in seconds."""

from __future__ import annotations

__all__ = ()
