"""Datasets for other training loops: loaders, and the dataset classes of PyTorch and Keras.

State belongs to the thread of the training loop.
"""

from __future__ import annotations

__all__ = ()
