"""What training loops of others take: loaders, PyTorch's datasets and Keras's."""

from __future__ import annotations

__all__ = ()
