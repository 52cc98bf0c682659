"""Where a pipeline runs: on the current event loop, in a thread, without a loop."""

from __future__ import annotations

__all__ = ()
