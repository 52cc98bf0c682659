"""The dataset classes that read files, one module for each."""

from __future__ import annotations

__all__ = ()
