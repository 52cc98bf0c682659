"""Device: what the device engine needs of a kind of accelerator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from asyncdata.devices.pinned_memory import PinnedMemory
from asyncdata.elements.tensors import is_numbers, is_tensor

__all__ = ("DONE", "Device", "Done", "Event", "Sent", "is_array")


class Event(Protocol):
    """A point in the work that was given to a device."""

    def wait(self) -> None:
        """Block this thread until the device has come to this point, without holding the interpreter's lock."""
        ...


class Done:
    """The event of a device that works at once."""

    def wait(self) -> None:
        """Return at once."""


DONE: Final = Done()


class Sent(NamedTuple):
    """Arrays that are being copied to a device.

    At `ready` they hold their data, and the device no longer reads the memory of the host.
    """

    arrays: Sequence[Any]
    ready: Event


class Device(Protocol):
    """One device as one iterator uses it. It is made in the consumer's thread, where "cuda" gets its number.

    `send` runs in the thread that copies, all else in the consumer's.
    """

    @property
    def pinned_memory(self) -> PinnedMemory | None:
        """The pinned memory that the device reads; what lies elsewhere is copied there. `None` if it needs none."""
        ...

    def is_sent(self, leaf: Any) -> bool:
        """Return whether a leaf is copied to the device; others pass as they are."""
        ...

    def send(self, leaves: Sequence[Any], into: Sequence[Any] | None) -> Sent:
        """Start to copy arrays to the device, on its copy stream.

        With `into` the result is memory that is written again: arrays of an earlier batch where they fit, else new.
        """
        ...

    def parts(self, packed: Any, likes: Sequence[tuple[int, Any]]) -> Sequence[Any]:
        """Return arrays that lie in one of bytes on the device: each from a byte on, like an array on the host.

        Devices without pinned memory are not asked.
        """
        ...

    def arrive(self, sent: Sent) -> None:
        """Let the consumer's current stream wait for the copy, and say that it uses the arrays."""
        ...

    def leave(self) -> Event:
        """Return the event after all that the consumer's current stream has been given so far."""
        ...

    def write(self, target: Any, array: Any) -> None:
        """Copy one array to another of the same shape and dtype, both on the device, on the current stream."""
        ...

    def close(self) -> None:
        """Wait until nothing is being copied."""
        ...


def is_array(leaf: Any) -> bool:
    """Return whether a leaf is numbers: an array, a scalar of NumPy or a tensor. Python's own numbers are not."""
    return is_numbers(leaf) or is_tensor(leaf)
