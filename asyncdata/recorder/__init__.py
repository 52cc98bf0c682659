"""The recorder: where elements came from, which were delivered in which step, and the same elements once more.

State belongs to the thread that asks; a log that is being written to the consumer's.
"""

from __future__ import annotations

__all__ = ()
