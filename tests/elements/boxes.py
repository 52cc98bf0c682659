"""A subclass of tensors with metadata, as those of torchvision.tv_tensors."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ("Boxes",)


class Boxes(torch.Tensor):
    """A tensor with the layout of its boxes; what computes with it gives plain tensors."""

    layout_of_boxes: str

    def __new__(cls, data: Any, layout: str) -> Any:
        made = torch.as_tensor(data).as_subclass(cls)
        made.layout_of_boxes = layout
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001  as tv_tensors do
            found = func(*args, **(kwargs or {}))
        first = args[0] if args else None
        if func in {torch.Tensor.clone, torch.Tensor.detach, torch.Tensor.to} and isinstance(first, cls):
            return cls(found, first.layout_of_boxes)
        return found.as_subclass(torch.Tensor) if isinstance(found, cls) else found
