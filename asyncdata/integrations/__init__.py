"""Datasets for other training loops: loaders, and the dataset classes of PyTorch and Keras."""

from __future__ import annotations

__all__ = ()
