"""The bounded, closable queue of blocks between two tasks, and the signals by which its two sides wake each other.

One side writes, one reads; they may live on one loop, on two, or the reader may be a plain thread. Neither side takes
a lock: each announces that it is about to wait, looks again, and only then waits; the other wakes it at most once.
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
"""Why a pipeline was stopped."""

MOST_ITEMS: Final = 4096
MOST_BYTES: Final = 64 << 20
"""What a buffer may grow to only because it holds little work: large elements that take no time are not worth more."""
LEAST_WORK: Final = ((8e-3, 4 << 20), (2e-3, MOST_BYTES))
"""Seconds of work that a buffer is to hold, and the bytes that it may grow to for so much: what caches do not hold
costs more than to be woken more often, which takes up to a tenth of a millisecond."""
STEP: Final = 8
"""How many times more a buffer may hold at once, as a few items tell little of the time that others take."""


def now_on(loop: asyncio.AbstractEventLoop) -> float:
    """Return the seconds by which work is measured, and what a loop for tests has let its clock jump over.

    Not the time of the loop, which uvloop tells in whole milliseconds.
    """
    return time.perf_counter() + getattr(loop, "jumped", 0.0)


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Return what tells the same, as fast as it may."""
    return partial(now_on, loop) if is_virtual(loop) else time.perf_counter


def is_virtual(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the time of a loop is virtual, as that of `asyncdata.testing.virtual_time`: nothing can block it."""
    return hasattr(loop, "jumped")


class Signal(Protocol):
    """How one side of a queue is woken. Callable from any thread and from finalizers."""

    def notify(self) -> None:
        """Wake the side that waits, if it does."""
        ...


class LoopSignal:
    """Wakes a task of an event loop; `threadsafe` if it is notified from other threads."""

    __slots__ = ("armed", "future", "loop", "threadsafe")

    loop: asyncio.AbstractEventLoop
    """Set by the task before it waits, if it was not there yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, *, threadsafe: bool = False) -> None:
        if loop is not None:
            self.loop = loop
        self.armed = False
        self.future: asyncio.Future[None] | None = None
        self.threadsafe = threadsafe

    async def until(self, ready: Callable[[], object]) -> None:
        """Wait until `ready()`, which is asked again after each notification."""
        while not ready():
            self.future = self.loop.create_future()
            self.armed = True
            if self.threadsafe and ready():  # another thread has said so before it could see that this one waits
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
                if isinstance(error, RuntimeError) and self.loop.is_closed():  # nobody waits there any more
                    return
                self.armed = True  # a signal handler has raised: the next call wakes who waits
                raise

    def fire(self) -> None:
        """Let the waiting task look again; runs on its loop."""
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
        """Block this thread until `ready()`; after so many seconds call `tell`, until that returns true."""
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
    """How many items a buffer may hold: fixed, or with AUTOTUNE more as it proves too small.

    When a reader finds it empty, it doubles if it was full before (the rule of tf.data's first prefetch tuner). It
    also grows while all that it may hold is less than eight milliseconds of work and 4 MB, or two and 64 MB. One that
    tunes itself has a `share` of the budget, and holds at least one item. It begins with the `first` number of items,
    of a weight if that is known.
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
        """The seconds that an item of the last block took."""
        self.since = 0.0
        self.written = 0

    @property
    def chunk(self) -> int:
        """How many items one block may hold, so that a reader holding one block is not far ahead of its word."""
        return max(1, self.items // 4)

    def stats(self) -> dict[str, Any]:
        """Return how many items it may hold, how many bytes of the budget it has for that, and why."""
        return {"buffer": self.items, "bytes": self.share.bytes, "why": self.why}

    def weigh(self, block: Block) -> None:
        """Bound the buffer in bytes by what an item of `block` weighs; of items that differ by the heavier ones."""
        if self.auto and not self.weight < 2 * (weight := block.weight) <= 2 * self.weight:
            self.weight = weight
            self.fit()

    def fit(self) -> None:
        """Have room in the budget for what the buffer may hold with the block being made, or hold less."""
        most = self.share.claim((self.items + self.chunk) * self.weight, 2 * self.weight) // max(1, self.weight)
        if self.weight and most < self.items + self.chunk:
            self.items, self.why = max(1, most * 4 // 5), "the budget has no room for more"

    def starved(self) -> None:
        """Take note that a reader found the buffer empty."""
        self.filled, full = False, self.filled
        if self.auto:
            if full:
                self.grow(2, "fewer were used up before more came")
            self.enlarge(self.each)

    def emptied(self, written: int, now: float) -> None:
        """Take note that a reader took all there was, when `written` items had been written in all."""
        fresh = written - self.written
        if fresh:
            self.enlarge((now - self.since) / fresh)
        self.since, self.written = now, written

    def enlarge(self, each: float) -> None:
        """Let it hold more, if that is less than is to be had of items that take so many seconds each."""
        times = max([self.times(each, seconds, most) for seconds, most in LEAST_WORK])
        if times > 1:
            self.grow(times, "fewer were too little work")

    def times(self, each: float, seconds: float, most: int) -> int:
        """Return how many times more it is to hold at once for so much work, in so many bytes at most."""
        if each * self.items >= seconds:
            return 1
        times = max(2, int(seconds / max(each, 1e-9)) // self.items)
        return min(times, STEP, most // max(1, self.items * self.weight))

    def grow(self, times: int, why: str) -> None:
        """Let it hold so many times more, as far as the budget goes."""
        self.items, self.why = min(self.items * times, MOST_ITEMS), why
        self.fit()


class BlockQueue:
    """A queue of blocks, bounded in items. A reader that waits adds one to what may be held, if that is fixed."""

    def __init__(self, depth: BufferSize, writer: Signal, reader: Signal) -> None:
        self.depth = depth
        self.writer = writer
        self.reader = reader
        self.blocks: deque[Block] = deque()
        self.written = 0
        self.taken = 0
        self.undelivered = 0
        """Blocks that the reader has taken and has not given out whole: it may be asked for any place in them."""
        self.reader_waits = 0
        self.ended = False
        """Whether nothing more will be written, for whatever reason."""
        self.complete = False
        """Whether all of the data was written: only the writer that has read its input to the end says so."""
        self.stopped = False
        self.reason = "it was stopped from elsewhere"
        """Why it was stopped."""
        self.error: BaseException | None = None
        self.on_full: Callable[[float], object] = ignore
        """Told for how many seconds the writer waited for room."""

    def free(self) -> int:
        """Return how many more items may be written.

        `taken` is looked at first: another thread changes `reader_waits` before it, and it counts once.
        """
        left = self.taken - self.written
        return (self.depth.items if self.depth.auto else self.depth.items + self.reader_waits) + left

    def may_write(self) -> bool:
        return self.free() > 0 or self.stopped

    def may_read(self) -> bool:
        return bool(self.blocks) or self.ended or self.stopped

    @property
    def held(self) -> int:
        """How many items were written and not taken yet."""
        return max(0, self.written - self.taken)

    # the writer's side

    def room_now(self) -> int:
        """Return how many items the next block may hold; none if the reader has left."""
        return 0 if self.stopped else min(self.free(), self.depth.chunk)

    def put(self, block: Block, seconds: float = inf) -> None:
        """Append a block, which took so many seconds. The writer has asked for room before."""
        self.depth.weigh(block)
        self.depth.each = seconds / len(block)
        self.written += len(block)
        self.blocks.append(block)
        self.reader.notify()

    def finish(self, error: BaseException | None = None) -> None:
        """Say that nothing more will come, because of `error` if there was one; this is not the end of the data."""
        if not self.ended:
            self.error = None if self.stopped else error  # one that the stopping led to says less than its reason
            self.ended = True
            self.reader.notify()

    def finish_complete(self) -> None:
        """Say that all of the data was written. A writer may have ended early because the queue was stopped."""
        self.complete = not self.stopped and not self.ended
        self.finish()

    # the reader's side

    def request_more(self) -> None:
        """Say that the reader is about to wait: one item more may be written than the depth says."""
        self.depth.starved()
        self.reader_waits = 1
        self.writer.notify()

    def first(self) -> Block | None:
        """Return the next block, which stays here until it is released; `None` if there is none now."""
        return self.blocks[0] if self.blocks else None

    def release(self, taken: int) -> None:
        """Take the next block out, if there is one up to `taken` items in all; nothing if that was done already.

        Whoever reads has stored the block before: a signal handler may raise in here, and this is called again.
        """
        if self.taken < taken:
            blocks = self.blocks
            # no call from here on
            self.reader_waits = 0
            self.taken = taken
            del blocks[0]
            self.writer.notify()

    def take(self) -> Block | None:
        """Take the next block, `None` if there is none now; where no signal handler raises."""
        block = self.first()
        if block is not None:
            self.release(self.taken + len(block))
        return block

    def failure(self) -> BaseException | None:
        """Return why nothing more comes, `None` at the end of the data; the same object each time."""
        if self.error is None and not self.complete:
            self.error = ClosedError(
                f"the pipeline was stopped before the end of its data: {self.reason}; this is not the end of the data"
            )
        return self.error

    def pass_on(self) -> Block | None:
        """Take the next block for a reader elsewhere, who says by `account` when it has read it."""
        return self.blocks.popleft() if self.blocks else None

    def acknowledge(self, taken: int, reader_waits: bool) -> None:
        """Take note of how many items a reader elsewhere has read in all, and whether it waits for more."""
        self.reader_waits = 0
        self.taken = taken
        if reader_waits and taken == self.written:  # else what it waits for is on its way
            self.request_more()
        else:
            self.writer.notify()

    def stop(self, reason: str | None = None) -> None:
        """Leave: nothing more will be read. From any thread, also from a finalizer."""
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

    async def room(self) -> int:
        """Wait for room, and return how many items the next block may hold; 0 if the reader has left."""
        while not self.stopped:
            if (room := self.room_now()) > 0:  # a depth may shrink at any time, in the reader's thread
                return room
            self.depth.filled = True
            begin = now_on(self.task.loop)
            await self.task.until(self.may_write)
            self.on_full(now_on(self.task.loop) - begin)
        return 0

    def take_ready(self, limit: int) -> Block | None:
        """Take all that is there, at most `limit` items, as one block; `None` if there is nothing now."""
        if not self.blocks:
            return None
        parts: list[Block] = []
        while self.blocks and limit > 0:
            head = self.blocks.popleft()
            if len(head) > limit:
                self.blocks.appendleft(head.part(limit, len(head)))
                head = head.part(0, limit)
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

    def room(self) -> int:
        """Block until there is room, and return how many items the next block may hold; 0 if the reader has left."""
        while not self.stopped:
            if (room := self.room_now()) > 0:
                return room
            self.depth.filled = True
            begin = time.perf_counter()
            self.thread.until(self.may_write)
            self.on_full(time.perf_counter() - begin)
        return 0
