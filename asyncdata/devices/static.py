"""StaticArrays: arrays of the caller, to which each element is copied, as CUDA graphs require."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncdata.devices.base import Device
from asyncdata.elements.structure import map_leaves
from asyncdata.errors import StructureError

__all__ = ("StaticArrays",)


class StaticArrays:
    """The leaves of a structure of arrays on a device, by their paths."""

    def __init__(self, structure: Any) -> None:
        self.leaves: dict[str, Any] = {}
        map_leaves(lambda leaf, path: self.leaves.setdefault(path, leaf), structure)

    def write(self, device: Device, paths: Sequence[str], arrays: Sequence[Any]) -> list[Any]:
        """Copy the arrays of an element to those at the same paths; return these."""
        targets = [self.target(path, array) for path, array in zip(paths, arrays, strict=True)]
        for target, array in zip(targets, arrays, strict=True):
            device.write(target, array)
        return targets

    def target(self, path: str, array: Any) -> Any:
        """Return the caller's array for a path; `StructureError` if it does not match."""
        target, name = self.leaves.get(path), f"leaf {path}" if path else "the element"
        if target is None:
            raise StructureError(f"prefetch_to_device(static=) has no array for {name}")
        if tuple(target.shape) != tuple(array.shape) or target.dtype != array.dtype:
            raise StructureError(
                f"{name} is {array.dtype} of shape {tuple(array.shape)}, and that of static= is {target.dtype} of "
                f"shape {tuple(target.shape)}; batch(n, drop_remainder=True) gives complete batches only"
            )
        return target
