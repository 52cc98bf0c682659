"""Commands of the command line. They run in the main thread; what others use says so."""

from __future__ import annotations

__all__ = ()
