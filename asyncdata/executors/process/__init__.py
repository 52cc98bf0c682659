"""Worker processes: the standard pool, functions that travel, and results that arrive in shared memory.

State belongs to the engine's thread, or in a worker process to its main thread, unless a class says otherwise.
"""

from __future__ import annotations

__all__ = ()
