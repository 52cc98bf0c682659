"""Devices: copies elements to an accelerator while the consumer computes; one module for each kind of device."""

from __future__ import annotations

__all__ = ()
