"""Where elements come from.

A run's state belongs to the engine's thread. What is known of files is shared by all runs: two threads that need it at
the same time both read it, and find the same.
"""

from __future__ import annotations

__all__ = ()
