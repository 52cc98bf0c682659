"""The bounded, closable queue of blocks between two tasks: back-pressure, and the signals by which its sides wake.

One side writes, one reads. They may run on one loop or on two, or the reader may be a plain thread. Neither side takes
a lock: each announces that it is about to wait, checks again, and only then waits; the other wakes it at most once.

Reasons and measurements: docs/design.md, "AUTOTUNE".
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol

from asyncdata.errors import ClosedError
from asyncdata.options import AUTOTUNE
from asyncdata.runtime.block import Block
from asyncdata.runtime.memory_budget import MemoryBudget, Reservation

__all__ = (
    "AT_EXIT",
    "MOST_BYTES",
    "BlockQueue",
    "BufferSize",
    "LoopQueue",
    "LoopSignal",
    "Signal",
    "ThreadQueue",
    "ThreadSignal",
    "clock_of",
    "is_virtual",
    "now_on",
)

AT_EXIT: Final = "the interpreter is exiting"
"""A reason why a pipeline was stopped."""

MOST_ITEMS: Final = 4096
MOST_BYTES: Final = 64 << 20
"""The largest buffer that grows only because it holds little work; more does not pay for large, fast elements."""
LEAST_WORK: Final = ((8e-3, 4 << 20), (2e-3, MOST_BYTES))
"""The seconds of work that a buffer should hold, and the bytes that it may grow to for that. Data beyond the
processor's cache costs more than more frequent wake-ups, which take up to a tenth of a millisecond each."""
STEP: Final = 8
"""The largest factor by which a buffer grows at once, as few items predict the time of others badly."""


def now_on(loop: asyncio.AbstractEventLoop) -> float:
    """Return the time by which work is measured, plus the jumps of a test loop's virtual clock.

    The loop's own time is not used, as uvloop rounds it to milliseconds.
    """
    return time.perf_counter() + getattr(loop, "jumped", 0.0)


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Return the fastest function that returns `now_on` of a loop."""
    return partial(now_on, loop) if is_virtual(loop) else time.perf_counter


def is_virtual(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether a loop has virtual time, as in `asyncdata.testing.virtual_time`: nothing can block it."""
    return hasattr(loop, "jumped")


class Signal(Protocol):
    """Wakes one side of a queue. Callable from any thread and from finalizers."""

    def notify(self) -> None:
        """Wake the side if it is waiting."""
        ...


class LoopSignal:
    """Wakes a task of an event loop; `threadsafe` if it is notified from other threads."""

    __slots__ = ("armed", "future", "loop", "threadsafe")

    loop: asyncio.AbstractEventLoop
    """The loop of the task, which sets it before it first waits if it was not given."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, *, threadsafe: bool = False) -> None:
        if loop is not None:
            self.loop = loop
        self.armed = False
        self.future: asyncio.Future[None] | None = None
        self.threadsafe = threadsafe

    async def until(self, ready: Callable[[], object]) -> None:
        """Wait until `ready()`, which is checked after each notification."""
        while not ready():
            self.future = self.loop.create_future()
            self.armed = True
            if self.threadsafe and ready():  # another thread has changed it before it could see that this one waits
                self.armed = False
                return
            await self.future

    def notify(self) -> None:
        if self.armed:
            self.armed = False
            try:
                if self.threadsafe:
                    self.loop.call_soon_threadsafe(self.fire)
                else:
                    self.fire()
            except BaseException as error:
                if isinstance(error, RuntimeError) and self.loop.is_closed():  # no task waits there any more
                    return
                self.armed = True  # a signal handler has raised: the next call wakes the task
                raise

    def fire(self) -> None:
        """Let the waiting task check again; runs on its loop."""
        if self.future is not None and not self.future.done():
            self.future.set_result(None)


class ThreadSignal:
    """Wakes a plain thread. Waiting can be interrupted by Ctrl-C in the main thread."""

    __slots__ = ("armed", "gate")

    def __init__(self) -> None:
        self.armed = False
        self.gate: SimpleQueue[None] = SimpleQueue()

    def until(
        self, ready: Callable[[], object], seconds: float | None = None, tell: Callable[[], object] | None = None
    ) -> None:
        """Block this thread until `ready()`; after some seconds call `tell`, until that returns true."""
        while not ready():
            self.armed = True
            if ready():
                self.armed = False
                return
            try:
                self.gate.get(timeout=seconds)
            except Empty:
                seconds = None if tell is None or tell() else seconds

    def notify(self) -> None:
        if self.armed:
            self.armed = False
            self.gate.put(None)


class BufferSize:
    """How many items a buffer may hold: fixed, or with AUTOTUNE increased when it proves too small.

    When a reader finds it empty, it doubles if it was full before (the rule of tf.data's first prefetch tuner). It
    also grows while its capacity is less than eight milliseconds of work and 4 MB, or two milliseconds and 64 MB. A
    self-tuning buffer has a `share` of the budget, and holds at least one item. It begins with `first`: a number of
    items, and their weight in bytes if it is known. It grows in the thread that reads, and is weighed in the one that
    writes.
    """

    __slots__ = ("auto", "each", "filled", "items", "share", "since", "weight", "why", "written")

    def __init__(self, items: int, share: Reservation | None = None, first: tuple[int, int] = (2, 0)) -> None:
        self.auto = items == AUTOTUNE
        self.items, self.weight = first if self.auto else (items, 0)
        self.why = "to begin with"
        self.share = share or MemoryBudget().share()
        if self.weight:
            self.fit()
        self.filled = False
        self.each = inf
        """The seconds for an item of the last block."""
        self.since = 0.0
        self.written = 0

    @property
    def chunk(self) -> int:
        """How many items one block may hold, so that a reader with one block is not far beyond the depth."""
        return max(1, self.items // 4)

    def stats(self) -> dict[str, Any]:
        """Return how many items it may hold, how many bytes of the budget it has, and the reason."""
        return {"buffer": self.items, "bytes": self.share.bytes, "why": self.why}

    def weigh(self, block: Block) -> None:
        """Bound the buffer in bytes by the weight of an item of `block`; if items differ, by the heavier ones."""
        if self.auto and not self.weight < 2 * (weight := block.weight) <= 2 * self.weight:
            self.weight = weight
            self.fit()

    def fit(self) -> None:
        """Reserve memory for the buffer and the block being made, or reduce the buffer."""
        most = self.share.claim((self.items + self.chunk) * self.weight, 2 * self.weight) // max(1, self.weight)
        if self.weight and most < self.items + self.chunk:
            self.items, self.why = max(1, most * 4 // 5), "the memory budget is used up"

    def starved(self) -> None:
        """Record that a reader found the buffer empty."""
        self.filled, full = False, self.filled
        if self.auto:
            if full:
                self.grow(2, "fewer were used up before more came")
            self.enlarge(self.each)

    def emptied(self, written: int, now: float) -> None:
        """Record that a reader took all items, when `written` items had been written in total."""
        fresh = written - self.written
        if fresh:
            self.enlarge((now - self.since) / fresh)
        self.since, self.written = now, written

    def enlarge(self, each: float) -> None:
        """Enlarge the buffer if it holds too little work, at `each` seconds per item."""
        times = max([self.times(each, seconds, most) for seconds, most in LEAST_WORK])
        if times > 1:
            self.grow(times, "fewer were too little work")

    def times(self, each: float, seconds: float, most: int) -> int:
        """Return the factor by which it should grow for `seconds` of work, up to `most` bytes."""
        if each * self.items >= seconds:
            return 1
        times = max(2, int(seconds / max(each, 1e-9)) // self.items)
        return min(times, STEP, most // max(1, self.items * self.weight))

    def grow(self, times: int, why: str) -> None:
        """Grow by a factor, as far as the budget allows."""
        self.items, self.why = min(self.items * times, MOST_ITEMS), why
        self.fit()


class BlockQueue:
    """A queue of blocks, bounded in items. A waiting reader increases a fixed bound by one.

    The methods of each side run in that side's thread alone; `finish` is the writer's, `stop` is for any thread.
    """

    def __init__(self, depth: BufferSize, writer: Signal, reader: Signal) -> None:
        self.depth = depth
        self.writer = writer
        self.reader = reader
        self.blocks: deque[Block] = deque()
        self.written = 0
        self.taken = 0
        self.undelivered = 0
        """Blocks that the reader has taken but not delivered completely; states may need positions in them."""
        self.reader_waits = 0
        self.ended = False
        """Whether nothing more will be written, for any reason."""
        self.complete = False
        """Whether all of the data was written; set only by a writer that has read its input to the end."""
        self.stopped = False
        self.reason = "it was stopped from elsewhere"
        """Why it was stopped."""
        self.error: BaseException | None = None
        self.on_full: Callable[[float], object] = ignore
        """Called with the seconds that the writer waited for capacity."""

    def free(self) -> int:
        """Return how many more items may be written.

        `taken` is read first, as the reader's thread changes `reader_waits` before it; so an item counts only once.
        """
        left = self.taken - self.written
        return (self.depth.items if self.depth.auto else self.depth.items + self.reader_waits) + left

    def may_write(self) -> bool:
        return self.free() > 0 or self.stopped

    def may_read(self) -> bool:
        return bool(self.blocks) or self.ended or self.stopped

    @property
    def held(self) -> int:
        """How many items were written and not yet taken."""
        return max(0, self.written - self.taken)

    # the writer's side

    def capacity(self) -> int:
        """Return how many items the next block may hold; 0 if the reader has stopped."""
        return 0 if self.stopped else min(self.free(), self.depth.chunk)

    def put(self, block: Block, seconds: float = inf) -> None:
        """Append a block, which took `seconds`. The writer must have waited for capacity."""
        self.depth.weigh(block)
        self.depth.each = seconds / len(block)
        self.written += len(block)
        self.blocks.append(block)
        self.reader.notify()

    def finish(self, error: BaseException | None = None) -> None:
        """Mark the end of writing, after an `error` if there was one; this is not the end of the data."""
        if not self.ended:
            self.error = None if self.stopped else error  # the reason of the stop says more than an error caused by it
            self.ended = True
            self.reader.notify()

    def finish_complete(self) -> None:
        """Mark the end of the data, unless the writer ended early because the queue was stopped."""
        self.complete = not self.stopped and not self.ended
        self.finish()

    # the reader's side

    def request_more(self) -> None:
        """Announce that the reader is about to wait: one more item than the depth may be written."""
        self.depth.starved()
        self.reader_waits = 1
        self.writer.notify()

    def first(self) -> Block | None:
        """Return the next block, which stays here until it is released; `None` if there is none now."""
        return self.blocks[0] if self.blocks else None

    def release(self, taken: int) -> None:
        """Remove the next block, up to `taken` items in total. Idempotent.

        The reader must have stored the block: a signal handler may raise in here, and then this is called again.
        """
        if self.taken < taken:
            blocks = self.blocks
            # no call from here on
            self.reader_waits = 0
            self.taken = taken
            del blocks[0]
            self.writer.notify()

    def take(self) -> Block | None:
        """Remove and return the next block, `None` if there is none now; only where no signal handler can raise."""
        block = self.first()
        if block is not None:
            self.release(self.taken + len(block))
        return block

    def failure(self) -> BaseException | None:
        """Return the error that ended the queue, `None` at the end of the data; the same object each time."""
        if self.error is None and not self.complete:
            self.error = ClosedError(
                f"the pipeline was stopped before the end of its data: {self.reason}; this is not the end of the data"
            )
        return self.error

    def pass_on(self) -> Block | None:
        """Remove the next block for a reader in another process, which acknowledges it after reading."""
        return self.blocks.popleft() if self.blocks else None

    def acknowledge(self, taken: int, reader_waits: bool) -> None:
        """Record how many items a reader in another process has read in total, and whether it waits for more."""
        self.reader_waits = 0
        self.taken = taken
        if reader_waits and taken == self.written:  # else the items that it waits for are on their way
            self.request_more()
        else:
            self.writer.notify()

    def stop(self, reason: str | None = None) -> None:
        """End reading. Callable from any thread and from finalizers."""
        if reason is not None and not self.stopped:
            self.reason = reason
        self.stopped = True
        self.writer.notify()
        self.reader.notify()


def ignore(_: float) -> None:
    """Do nothing."""


class LoopQueue(BlockQueue):
    """A queue that a task writes to."""

    def __init__(self, depth: BufferSize, writer: LoopSignal, reader: Signal) -> None:
        super().__init__(depth, writer, reader)
        self.task = writer

    async def wait_for_capacity(self) -> int:
        """Wait for capacity, and return how many items the next block may hold; 0 if the reader has stopped."""
        while not self.stopped:
            if (free := self.capacity()) > 0:  # a depth may shrink at any time, in the reader's thread
                return free
            self.depth.filled = True
            begin = now_on(self.task.loop)
            await self.task.until(self.may_write)
            self.on_full(now_on(self.task.loop) - begin)
        return 0

    def take_ready(self, limit: int) -> Block | None:
        """Remove all items, at most `limit`, and return them as one block; `None` if there are none now."""
        if not self.blocks:
            return None
        parts: list[Block] = []
        while self.blocks and limit > 0:
            head = self.blocks.popleft()
            if len(head) > limit:
                self.blocks.appendleft(head.slice(limit, len(head)))
                head = head.slice(0, limit)
            limit -= len(head)
            self.reader_waits = 0
            self.taken += len(head)
            parts.append(head)
        if self.depth.auto and not self.blocks:
            self.depth.emptied(self.written, now_on(self.task.loop))
        self.writer.notify()
        return Block.join(parts)


class ThreadQueue(BlockQueue):
    """A queue that a plain thread writes to."""

    def __init__(self, depth: BufferSize, reader: Signal) -> None:
        super().__init__(depth, signal := ThreadSignal(), reader)
        self.thread = signal

    def wait_for_capacity(self) -> int:
        """Block until there is capacity; return how many items the next block may hold, 0 if the reader has stopped."""
        while not self.stopped:
            if (free := self.capacity()) > 0:
                return free
            self.depth.filled = True
            begin = time.perf_counter()
            self.thread.until(self.may_write)
            self.on_full(time.perf_counter() - begin)
        return 0
