"""DeviceQueue: the queue of elements on a device that the consumer reads; it also feeds the copy thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any, Final

from asyncdata.devices.base import Device, Sent
from asyncdata.devices.copy_thread import Batch, Credit, End, Task
from asyncdata.devices.element_arrays import join_arrays
from asyncdata.elements.structure import map_leaves
from asyncdata.engines.base import Engine, LoopEngine
from asyncdata.errors import ClosedError, StageError, StructureError
from asyncdata.executors.function_call import noted
from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.queue import BlockQueue, BufferSize, Signal
from asyncdata.runtime.tickets import Tickets
from asyncdata.transforms.prefetch_to_device import PrefetchToDevice

__all__ = ("DeviceQueue",)


class NullSignal:
    """The signal of a writer that never waits."""

    def notify(self) -> None:
        """Do nothing."""


NULL_SIGNAL: Final[Signal] = NullSignal()


class DeviceQueue(BlockQueue):
    """Batches on the device, or on their way. All methods except `put` and `finish` run in the consumer's thread.

    Flow control is by credits: a batch is passed to the copy thread only with a credit. There are `buffer_size`
    credits, and one more for the batch that the consumer has. When the consumer asks for the next batch, that credit is
    returned with an event, which is reached when the consumer's stream has done all its work so far. The copy thread
    waits for this event (`CopyThread.send`). So the credits bound the device's memory, and how far the consumer's
    thread runs ahead of the device.
    """

    def __init__(self, host: Engine, device: Device, node: PrefetchToDevice, tasks: SimpleQueue[Task]) -> None:
        super().__init__(BufferSize(node.buffer_size), NULL_SIGNAL, host)
        self.source = host.queue
        self.device = device
        self.label = node.label()
        self.ring = node.mode == "ring"
        self.static = None if node.static is None else StaticArrays(node.static)
        self.fills = isinstance(host, LoopEngine)
        """Whether the pipeline runs only while the consumer waits; the consumer then waits until the buffer is full."""
        self.credits = deque([Credit(None, () if self.ring else None)] * (node.buffer_size + 1))
        self.tasks = tasks
        self.unsent: deque[tuple[Any, Tickets, bool]] = deque()
        self.asked_all = self.paused = False
        self.consumer_has_batch = False
        """Whether the consumer has a batch, which is in use until it asks for the next one."""
        self.consumer_arrays: Sequence[Any] | None = None
        self.next: Block | None = None
        """The next batch for the consumer."""
        self.failed = 0
        """How many elements did not fit into the static arrays."""
        self.step_finished = True
        """False if a signal handler raised while a batch was passed on: elements may be lost then."""

    # from the pipeline to the copy thread

    def advance(self) -> None:
        """Pass elements of the pipeline to the copy thread, as far as there is space on the device; ask for more."""
        self.begin_step()
        self.send_available()
        self.step_finished = True

    def begin_step(self) -> None:
        """Begin to pass elements on; raise if an earlier step was interrupted, as elements may have been lost."""
        if not self.step_finished:
            raise ClosedError(
                "a signal handler raised while elements were handed to the device, and some may be lost: resume from a "
                "state, with dataset.iterate(state=iterator.state_dict())"
            )
        self.step_finished = False

    def send_available(self) -> None:
        """Pass the available elements to the copy thread."""
        while self.credits and not self.asked_all and (self.unsent or self.refill()):
            item, tickets, last = self.unsent.popleft()
            self.tasks.put(Batch(item, tickets, last, self.credits.popleft()))

    def refill(self) -> bool:
        """Take the next block of the pipeline; return whether there is one."""
        block = self.source.take()
        if block is not None:
            self.source.undelivered += 1
            last = len(block) - 1
            self.unsent.extend(
                (item, block.tickets.slice(place, place + 1), place == last) for place, item in enumerate(block.items)
            )
            return True
        if (self.source.ended or self.source.stopped) and not self.source.blocks:
            self.asked_all = True
            self.tasks.put(End(self.source.failure()))
        else:
            self.source.request_more()
        return False

    # from the copy thread to the consumer

    def may_read(self) -> bool:
        return self.ended or self.stopped or (bool(self.blocks) and self.is_filled())

    def is_filled(self) -> bool:
        """Return whether the next batch may be delivered without waiting for more."""
        return not self.fills or not self.credits or self.asked_all

    def request_more(self) -> None:
        """Do nothing: `advance` asks the pipeline for more."""

    def first(self) -> Block | None:
        if self.paused:
            raise StageError("next() within paused(): leave paused() first, no element arrives before")
        if self.next is None:
            self.begin_step()
            self.return_credit()
            self.send_available()
            found = self.arrived(self.blocks.popleft().items[0]) if self.blocks and self.may_read() else None
            # no call from here on
            self.next = found
            self.step_finished = True
        return self.next

    def release(self, taken: int) -> None:
        if self.taken < taken:
            # no call from here on
            self.taken = taken
            self.next = None

    def return_credit(self) -> None:
        """Return the credit of the batch that the consumer has, which it no longer uses when it asks for the next."""
        if self.consumer_has_batch:
            self.consumer_has_batch = False
            self.credits.append(Credit(self.device.leave(), self.consumer_arrays))

    def arrived(self, batch: Batch) -> Block:
        """Return a batch for the consumer, whose current stream waits for the copy."""
        if batch.last:
            self.source.undelivered -= 1
        if batch.sent is None:
            item: Any = batch.failure
            self.credits.append(batch.credit)
        else:
            item = self.element_of(batch, batch.sent)
        return Block([item], batch.tickets, type(item) is Failure)

    def element_of(self, batch: Batch, sent: Sent) -> Any:
        """Return the element with its arrays on the device, or the failure in its place."""
        self.device.arrive(sent)
        self.consumer_has_batch, self.consumer_arrays = True, sent.arrays if self.ring else None
        try:
            return join_arrays(batch.item, self.arrays(batch))
        except Exception as error:
            self.failed += 1
            return noted(error, self.label, batch.tickets[0])

    def arrays(self, batch: Batch) -> Sequence[Any]:
        """Return the arrays for the consumer; with static ones the batch's arrays, and its credit, are free at once."""
        if self.static is None:
            return batch.arrays
        written = self.static.write(self.device, batch.paths, batch.arrays)
        self.return_credit()
        return written


class StaticArrays:
    """The leaves of a structure of arrays of the caller on a device, by their paths: each element is copied to them, as
    CUDA graphs require."""

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
