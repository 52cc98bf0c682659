"""Commands of the command line."""

from __future__ import annotations

__all__ = ()
