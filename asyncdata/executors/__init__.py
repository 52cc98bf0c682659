"""How functions are called: in place, in threads, as tasks, in worker processes, and how many calls at once."""

from __future__ import annotations

__all__ = ()
