"""JAX devices and shardings; JAX orders copies and computations itself."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncdata.devices.base import Device, Sent, is_array
from asyncdata.elements.tensors import as_array, is_tensor
from asyncdata.errors import PlanError
from asyncdata.system.optional_packages import require

__all__ = ("JaxDevice",)


class JaxEvent:
    """The end of some copies."""

    __slots__ = ("arrays", "jax")

    def __init__(self, jax: Any, arrays: Sequence[Any]) -> None:
        self.jax = jax
        self.arrays = arrays

    def wait(self) -> None:
        self.jax.block_until_ready(self.arrays)


class JaxDevice(Device):
    """A JAX device, or a sharding over several.

    Computations with arrays wait for their copies, and running copies keep their sources alive.
    """

    def __init__(self, where: Any) -> None:
        self.jax = require("jax", "prefetch_to_device()")
        self.where = where
        self.on_cpu = platform_of(where) == "cpu"
        self.x64: bool = self.jax.config.jax_enable_x64
        """Whether numbers keep 64 bits in the consumer's thread: the setting may hold in one thread alone."""

    def is_sent(self, leaf: Any) -> bool:
        return is_array(leaf) or isinstance(leaf, self.jax.Array)

    def send(self, leaves: Sequence[Any], into: Sequence[Any] | None) -> Sent:
        sources = [leaf if isinstance(leaf, self.jax.Array) else owned(leaf, self.on_cpu) for leaf in leaves]
        with enable_x64(self.jax, self.x64):
            arrays = self.jax.device_put(sources, self.where)
        return Sent(arrays, JaxEvent(self.jax, arrays))

    def write(self, target: Any, array: Any) -> None:
        raise PlanError("arrays of JAX are immutable: prefetch_to_device(static=) is for PyTorch")


def platform_of(where: Any) -> str:
    """Return the kind of a device, or of those of a sharding."""
    device = where if hasattr(where, "platform") else next(iter(where.device_set))
    return device.platform


def enable_x64(jax: Any, enabled: bool) -> Any:
    """Return a context in which 64-bit numbers are kept, or not; older versions of JAX have it elsewhere."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(enabled)
    return importlib.import_module("jax.experimental").enable_x64(enabled)


def owned(leaf: Any, copied: bool) -> Any:
    """Return an array in native byte order whose memory JAX may take over: a copy if others may change it. On the CPU
    JAX shares the memory of aligned arrays, with `may_alias=False` too."""
    array = as_array(leaf) if is_tensor(leaf) else np.asarray(leaf)
    if copied or not array.flags.writeable or not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    return array
