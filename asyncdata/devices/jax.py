"""JAX devices and shardings; JAX orders copies and computations itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncdata.devices.base import DONE, Event, Sent, is_array
from asyncdata.elements.tensors import as_array, is_tensor
from asyncdata.errors import PlanError
from asyncdata.runtime.optional_packages import require

__all__ = ("JaxDevice",)


class JaxEvent:
    """The end of some copies."""

    __slots__ = ("arrays", "jax")

    def __init__(self, jax: Any, arrays: Sequence[Any]) -> None:
        self.jax = jax
        self.arrays = arrays

    def wait(self) -> None:
        self.jax.block_until_ready(self.arrays)


class JaxDevice:
    """A JAX device, or a sharding over several."""

    pinned_memory = None

    def __init__(self, where: Any) -> None:
        self.jax = require("jax", "prefetch_to_device()")
        self.where = where

    def is_sent(self, leaf: Any) -> bool:
        if is_array(leaf) or isinstance(leaf, self.jax.Array):
            return True
        kind: type[Any] = getattr(getattr(leaf, "dtype", None), "type", object)
        return isinstance(leaf, (np.ndarray, np.generic)) and kind.__module__ == "ml_dtypes"  # bfloat16 and the like

    def send(self, leaves: Sequence[Any], into: Sequence[Any] | None) -> Sent:
        sources = [leaf if isinstance(leaf, self.jax.Array) else owned(leaf) for leaf in leaves]
        arrays = self.jax.device_put(sources, self.where)
        return Sent(arrays, JaxEvent(self.jax, arrays))

    def parts(self, packed: Any, likes: Sequence[tuple[int, Any]]) -> Sequence[Any]:
        raise TypeError("arrays of JAX are sent one by one")

    def arrive(self, sent: Sent) -> None:
        """Do nothing: computations with the arrays wait for them."""

    def leave(self) -> Event:
        return DONE

    def write(self, target: Any, array: Any) -> None:
        raise PlanError("arrays of JAX are immutable: prefetch_to_device(static=) is for PyTorch")

    def close(self) -> None:
        """Do nothing: running copies keep their sources alive."""


def owned(leaf: Any) -> Any:
    """Return an array whose memory JAX may take over; a copy if others refer to it."""
    array = as_array(leaf) if is_tensor(leaf) else np.asarray(leaf)
    return array if array.flags.writeable else array.copy()
