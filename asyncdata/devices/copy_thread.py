"""CopyThread: the thread that copies batches to a device, one after another, each when there is space for it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeAlias

from asyncdata.devices.base import Device, Event, Sent
from asyncdata.devices.element_arrays import paths_of, split_arrays
from asyncdata.devices.encoded_pictures import EncodedPictures, is_encoded
from asyncdata.devices.staging import StagedArrays, Staging
from asyncdata.executors.function_call import ThreadPool, noted
from asyncdata.memory.memcpy import helper_count
from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.queue import BlockQueue
from asyncdata.runtime.spans import RECORDERS, record
from asyncdata.runtime.tickets import Tickets
from asyncdata.system.host_resources import usable_cores
from asyncdata.system.signal_handlers import start_thread
from asyncdata.transforms.prefetch_to_device import PrefetchToDevice

__all__ = ("Batch", "CopyThread", "Credit", "End", "Pause", "Task")


class Credit(NamedTuple):
    """Space for one batch on the device: free after an event, with the arrays that may be overwritten."""

    after: Event | None = None
    arrays: Sequence[Any] | None = None


class Batch:
    """One element on its way to the device; `last` if it is the last one of a block of the pipeline."""

    __slots__ = ("arrays", "credit", "failure", "item", "last", "paths", "sent", "tickets")

    def __init__(self, item: Any, tickets: Tickets, last: bool, credit: Credit) -> None:
        self.item = item
        self.tickets = tickets
        self.last = last
        self.credit = credit
        self.sent: Sent | None = None
        self.arrays: Sequence[Any] = ()
        """The arrays of the element on the device, which are views into those that were sent."""
        self.paths: Sequence[str] = ()
        """The paths of its arrays, if they are written to static ones, or some are decoded."""
        self.failure: Failure | None = item if type(item) is Failure else None


class End(NamedTuple):
    """Nothing more will be sent, because of `error`; without one this is the end of the data."""

    error: BaseException | None


class Pause:
    """Asks the thread to wait while no copy is running."""

    def __init__(self) -> None:
        self.reached: SimpleQueue[None] = SimpleQueue()
        self.over: SimpleQueue[None] = SimpleQueue()


Task: TypeAlias = Batch | End | Pause | None
"""A task of the thread; `None` ends it."""


class Copy(NamedTuple):
    """A copy that may be running, and the host memory that it reads."""

    ready: Event
    read: StagedArrays


class CopyThread:
    """Copies batches, and puts them into the consumer's queue.

    It holds no reference to the consumer's iterator. The thread ends at the end of the data, or when it is stopped.
    """

    def __init__(self, device: Device, queue: BlockQueue, tasks: SimpleQueue[Task], node: PrefetchToDevice) -> None:
        self.device = device
        self.queue = queue
        self.tasks = tasks
        self.label = node.label()
        self.most = node.buffer_size
        self.has_static = node.static is not None
        self.decodes = node.decode_on_device
        self.threads: list[threading.Thread] = []
        self.helpers = ThreadPool(self.start_helper, helper_count(usable_cores()), "asyncdata-device-copy")
        self.staging = Staging(device, self.helpers)
        self.copies: deque[Copy] = deque()
        self.pause: Pause | None = None
        self.worked = 0.0
        """Seconds spent copying or decoding, or waiting for copies."""
        self.failed = 0
        """How many elements could not be copied or decoded."""
        self.begun = self.ended = 0.0
        self.over = False
        self.on_end: Callable[[], object] | None = None
        self.thread = threading.Thread(target=self.main, name="asyncdata-device", daemon=True)

    def main(self) -> None:
        """Run the thread. An error of the device itself ends the pipeline."""
        self.begun = time.perf_counter()
        try:
            self.serve()
            self.drain()
            self.device.close()
        except BaseException as error:
            self.queue.finish(error)
        finally:
            self.queue.finish()
            self.end_helpers()
            self.ended = time.perf_counter()
            self.over = True
            self.release()
            if self.on_end is not None:
                with suppress(RuntimeError):  # the consumer's loop has been closed
                    self.on_end()

    @property
    def seconds(self) -> float:
        """How long the thread has run."""
        return (self.ended or time.perf_counter()) - self.begun if self.begun else 0.0

    def release(self) -> None:
        """Answer pending pauses, so that no thread waits for one that has ended."""
        while not self.tasks.empty():
            task = self.tasks.get()
            if isinstance(task, Pause):
                task.reached.put(None)

    def start_helper(self, run: Callable[[], None], name: str) -> None:
        """Start a thread that helps to copy large arrays."""
        self.threads.append(thread := threading.Thread(target=run, name=name, daemon=True))
        start_thread(thread)

    def end_helpers(self) -> None:
        """End the threads that help, which do not work now."""
        self.helpers.stop()
        for thread in self.threads:
            thread.join()

    def serve(self) -> None:
        """Run the tasks in order."""
        while not self.queue.stopped:
            task = self.next_task()
            match task:
                case Batch():
                    self.send(task)
                case End(error=error):
                    self.queue.finish_complete() if error is None else self.queue.finish(error)
                    return
                case Pause():
                    self.drain()
                    task.reached.put(None)
                    task.over.get()
                case None:
                    return

    def next_task(self) -> Task:
        """Return the next task; until there is one, wait for copies and release the memory that they read."""
        while self.copies and self.tasks.empty():
            self.settle()
        return self.tasks.get()

    def settle(self) -> None:
        """Wait for the oldest copy, and release the memory that it read."""
        begin = time.perf_counter()
        self.copies[0].ready.wait()
        self.worked += (seconds := time.perf_counter() - begin)
        if RECORDERS:
            record(self.label, "device", seconds, 0)
        self.staging.release_slot(self.copies.popleft().read)

    def drain(self) -> None:
        while self.copies:
            self.settle()

    def send(self, batch: Batch) -> None:
        """Copy a batch to the device when there is space, or put a failure in its place."""
        if batch.failure is None:
            if batch.credit.after is not None:
                batch.credit.after.wait()
            while len(self.copies) >= self.most:
                self.settle()
            try:
                self.start(batch)
            except Exception as error:
                self.failed += 1
                batch.failure = noted(error, self.label, batch.tickets[0])
        self.queue.put(Block([batch], batch.tickets))

    def is_sent(self, leaf: Any) -> bool:
        """Return whether a leaf is replaced by what is on the device."""
        return (self.decodes and is_encoded(leaf)) or self.device.is_sent(leaf)

    def start(self, batch: Batch) -> None:
        """Start to copy a batch; afterwards the batch holds only the parts that are not arrays."""
        begin = time.perf_counter()
        batch.item, leaves = split_arrays(batch.item, self.is_sent)
        batch.paths = paths_of(batch.item) if self.has_static or self.decodes else ()
        pictures = EncodedPictures(self.device, leaves, batch.paths) if self.decodes else None
        on_host = self.staging.pinned(leaves if pictures is None else pictures.leaves)
        sent = self.device.send(on_host.sources, batch.credit.arrays)
        self.copies.append(Copy(sent.ready, on_host))
        batch.arrays = on_host.parts(self.device, sent.arrays)
        if pictures is not None:
            batch.arrays = pictures.joined(batch.arrays)
            sent = Sent([*sent.arrays, *pictures.on_device()], sent.ready)
        batch.sent = sent
        self.worked += (seconds := time.perf_counter() - begin)
        if RECORDERS:
            record(self.label, "device", seconds, 1)
