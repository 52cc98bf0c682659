"""PyTorch's DataLoader with states that resume exactly: `from asyncdata.torch import DataLoader`.

State belongs to the thread of the training loop.
"""

from __future__ import annotations

from asyncdata.torch.dataloader import DataLoader

__all__ = ("DataLoader",)
