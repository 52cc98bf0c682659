"""Devices: copies elements to an accelerator while the consumer computes; one module for each kind of device.

State belongs to the thread that copies, unless a class says otherwise.
"""

from __future__ import annotations

__all__ = ()
