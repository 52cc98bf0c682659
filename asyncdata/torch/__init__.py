"""PyTorch's DataLoader, made of an asyncdata pipeline: `from asyncdata.torch import DataLoader`."""

from __future__ import annotations

from asyncdata.torch.dataloader import DataLoader

__all__ = ("DataLoader",)
