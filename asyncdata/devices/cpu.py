"""The CPU as a device: PyTorch tensors that share the memory of the arrays where that is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncdata.devices.base import DONE, Device, Sent
from asyncdata.devices.element_arrays import reusable
from asyncdata.elements.tensors import tensor_of
from asyncdata.system.optional_packages import require

__all__ = ("CpuDevice",)


class CpuDevice(Device):
    """Gives on the CPU the tensors that a program would have on a GPU."""

    def __init__(self) -> None:
        self.torch = require("torch", "prefetch_to_device()")

    def send(self, leaves: Sequence[Any], into: Sequence[Any] | None) -> Sent:
        tensors = [tensor_of(leaf) for leaf in leaves]
        if into is not None:
            tensors = [self.rewritten(into, place, tensor) for place, tensor in enumerate(tensors)]
        return Sent(tensors, DONE)

    def rewritten(self, into: Sequence[Any], place: int, tensor: Any) -> Any:
        """Return memory of an earlier batch with the content of a tensor; new memory if none fits."""
        target = reusable(into, place, tensor.shape, tensor.dtype)
        return tensor.clone() if target is None else target.copy_(tensor)

    def write(self, target: Any, array: Any) -> None:
        target.copy_(array)
