"""What is counted while a pipeline runs, and which resource is the limit.

The thread that works counts, and others only read. Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

__all__ = ()
