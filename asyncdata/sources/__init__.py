"""Where elements come from."""

from __future__ import annotations

__all__ = ()
