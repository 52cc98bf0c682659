"""Device: the base of each kind of accelerator; `choice` makes one for a user's argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from asyncdata.devices.packed_layout import PackedArray
from asyncdata.devices.pinned_memory import PinnedMemory
from asyncdata.elements.tensors import is_numbers, is_tensor, is_tensor_like
from asyncdata.errors import StructureError

__all__ = ("DONE", "Device", "Done", "Event", "Sent", "is_array")


class Event(Protocol):
    """A point in the work of a device."""

    def wait(self) -> None:
        """Block this thread until the device has reached this point, without holding the interpreter's lock."""
        ...


class Done:
    """The event of a device that works synchronously."""

    def wait(self) -> None:
        """Return at once."""


DONE: Final = Done()


class Sent(NamedTuple):
    """Arrays that are being copied to a device.

    At `ready` they hold their data, and the device no longer reads the host's memory.
    """

    arrays: Sequence[Any]
    ready: Event


class Device:
    """One device for one iterator. It is made in the consumer's thread, where "cuda" gets its index.

    The methods that are written here are those of a device that orders copies and computations itself.

    `send`, `decode` and `parts` run in the copy thread, all other methods in the consumer's.
    """

    pinned_memory: PinnedMemory | None = None
    """The pinned memory that the device reads; other arrays are copied to it. `None` if the device needs none."""

    def is_sent(self, leaf: Any) -> bool:
        """Return whether a leaf is copied to the device; others pass unchanged."""
        return is_array(leaf)

    def send(self, leaves: Sequence[Any], into: Sequence[Any] | None) -> Sent:
        """Start to copy arrays to the device, on its copy stream.

        With `into` the result is in reused memory: arrays of an earlier batch if they fit, else new ones.
        """
        raise NotImplementedError

    def decode(self, files: Sequence[bytes]) -> Sequence[Any]:
        """Return pictures as arrays of (3, height, width), uint8, on the device, made before those that are sent next.

        `None` for each that is decoded on the host.
        """
        return [None] * len(files)

    def parts(self, packed: Any, parts: Sequence[PackedArray]) -> Sequence[Any]:
        """Return views into an array of bytes on the device.

        Not called for devices without pinned memory.
        """
        raise NotImplementedError

    def arrive(self, sent: Sent) -> None:
        """Let the consumer's current stream wait for the copy, and record that it uses the arrays."""

    def leave(self) -> Event:
        """Return the event after all work of the consumer's current stream so far."""
        return DONE

    def write(self, target: Any, array: Any) -> None:
        """Copy one array to another of the same shape and dtype, both on the device, on the current stream."""
        raise NotImplementedError

    def close(self) -> None:
        """Wait until all copies are done."""


def is_array(leaf: Any) -> bool:
    """Return whether a leaf is an array of numbers, a NumPy scalar or a tensor; Python numbers are not.

    `StructureError` for what holds tensors and is none, as a TensorDict, which must not stay behind without a word.
    """
    if type(leaf) is np.ndarray:
        return is_numbers(leaf)
    if is_tensor_like(leaf) and not is_tensor(leaf):
        name = type(leaf).__name__
        raise StructureError(f"a {name} is not copied to a device: make it a dict, as with .to_dict(), in a map")
    return is_numbers(leaf) or is_tensor(leaf)
