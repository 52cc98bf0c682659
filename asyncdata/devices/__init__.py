"""Devices: what copies elements to an accelerator while its consumer computes, one module for each kind of device."""

from __future__ import annotations

__all__ = ()
