"""How functions are called: in place, in threads, as tasks, in worker processes, and how many calls at once.

State belongs to the engine's thread, unless a class says otherwise. Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

__all__ = ()
