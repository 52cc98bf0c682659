"""Modules here that need packages of an extra."""

from __future__ import annotations

collect_ignore = ["boxes.py"]  # needs PyTorch
