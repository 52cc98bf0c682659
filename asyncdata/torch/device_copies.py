"""DeviceCopies: copies the batches of an epoch to a device, ahead of the loop."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeAlias

from asyncdata.devices.base import DONE, Event, Sent
from asyncdata.devices.choice import device_for
from asyncdata.devices.element_arrays import join_arrays, split_arrays
from asyncdata.devices.staging import StagedArrays, Staging

__all__ = ("DeviceCopies", "DeviceCopy")

AHEAD: Final = 2
"""So many batches are on the device, or on their way, beside the one that the loop has."""


class Copied(NamedTuple):
    """A batch on its way to the device: what of it is no array, its arrays there, and what was sent."""

    item: Any
    arrays: Sequence[Any]
    sent: Sent


DeviceCopy: TypeAlias = Future[Copied]


class DeviceCopies:
    """Copies batches in a thread of its own, one after the other. All methods but `send` run in the loop's thread.

    As in `DeviceQueue`, credits bound the device's memory: a batch is copied when the loop's stream has done all its
    work on an earlier one.
    """

    def __init__(self, device: Any) -> None:
        self.device = device_for(device)
        self.staging = Staging(self.device)
        self.credits = deque[Event]([DONE] * (AHEAD + 1))
        self.loop_has_batch = False
        self.running = deque[tuple[Event, StagedArrays]]()
        """The copies that may be running, and the host memory that they read."""
        self.thread = ThreadPoolExecutor(1, "asyncdata-device")  # ends with this object
        weakref.finalize(self, wait_for_copies, self.running, os.getpid())

    def start(self, data: Any) -> DeviceCopy:
        """Begin to copy a batch, with a credit."""
        return self.thread.submit(self.send, data, self.credits.popleft())

    def send(self, data: Any, free: Event) -> Copied:
        """Start the copies of a batch when there is space for it; in the thread."""
        free.wait()
        while len(self.running) > AHEAD:
            ready, read = self.running[0]
            ready.wait()
            self.staging.release_slot(read)
            self.running.popleft()
        item, leaves = split_arrays(data, self.device.is_sent, lists=True)
        on_host = self.staging.pinned(leaves)
        sent = self.device.send(on_host.sources, None)
        self.running.append((sent.ready, on_host))
        return Copied(item, on_host.parts(self.device, sent.arrays), sent)

    def take(self, copy: DeviceCopy) -> Any:
        """Return a batch on the device, for which the loop's current stream waits; or raise what copying it raised."""
        try:
            item, arrays, sent = copy.result()
        except BaseException:
            self.credits.append(DONE)
            raise
        self.device.arrive(sent)
        self.loop_has_batch = True
        return join_arrays(item, arrays, lists=True)

    def return_credit(self) -> None:
        """Return the credit of the batch that the loop has, which it no longer uses when it asks for the next."""
        if self.loop_has_batch:
            self.loop_has_batch = False
            self.credits.append(self.device.leave())


def wait_for_copies(running: deque[tuple[Event, StagedArrays]], process: int) -> None:
    """Wait until the device no longer reads the host's memory; a forked child has no part in it."""
    while running and os.getpid() == process:
        running[0][0].wait()
        running.popleft()
