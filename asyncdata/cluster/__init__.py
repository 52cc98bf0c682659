"""The same pipeline on a Ray cluster: actors make the calls of its parallel steps.

State here belongs to the engine's thread, that of an actor to the one thread in which it works.
"""

from __future__ import annotations

__all__ = ()
