"""The parts of a running pipeline: blocks, tickets, queues, the memory budget, open files.

State belongs to the engine's thread, unless a class says otherwise. Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

__all__ = ()
